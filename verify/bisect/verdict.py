"""From findings to the verdict and the exit code: the table of docs/verdicts.md and
docs/exit-codes.md."""

from __future__ import annotations

from collections.abc import Collection

from verify.bisect.result import Finding, Verdict
from verify.compare import exit_codes
from verify.errors import ArgumentError

SEVERITY = list(Verdict)
"""From harmless to worst, in the order of the enumeration."""

_HARMLESS = (Verdict.IDENTICAL, Verdict.ROUNDING)
_LEFT_OUT = (Verdict.INCOMPLETE, Verdict.NOT_COMPARABLE)


def worst(findings: list[Finding]) -> Verdict:
    """The verdict of a run: that of its worst finding; IDENTICAL without any."""
    return max((f.verdict for f in findings), key=SEVERITY.index, default=Verdict.IDENTICAL)


def exit_code(findings: list[Finding], accept: Collection[Verdict], *, fails_on_flip: bool) -> int:
    """0 same or explained, 1 different, 3 not compared in full.

    Args:
        accept: verdicts that count as explained.
        fails_on_flip: a token flipped and the caller wants that to fail.
    """
    open_ = [f.verdict for f in findings if f.verdict not in (*_HARMLESS, *accept)]
    if fails_on_flip or any(v not in _LEFT_OUT for v in open_):
        return exit_codes.DIFFERENT
    return exit_codes.INCOMPLETE if open_ else exit_codes.SAME


def say_accepted(findings: list[Finding], accept: Collection[Verdict]) -> None:
    """Note in the findings themselves which of them were accepted, so that the report shows it."""
    for finding in findings:
        if finding.verdict in accept:
            finding.reasons.append(f"accepted: --accept {finding.verdict} was given")


def parse_accept(names: Collection[str]) -> list[Verdict]:
    """Verdicts by name, of those that may be accepted.

    Raises:
        ArgumentError: no such verdict, or one that says that nothing was compared.
    """
    allowed = [v for v in Verdict if v not in (Verdict.IDENTICAL, Verdict.NOT_COMPARABLE)]
    found: list[Verdict] = []
    for name in names:
        verdict = next((v for v in allowed if v.value == name.strip().upper()), None)
        if verdict is None:
            raise ArgumentError(
                "this verdict cannot be accepted",
                where="--accept",
                found=name,
                allowed=", ".join(allowed),
                hint="docs/verdicts.md says what each verdict means",
            )
        found.append(verdict)
    return found
