"""Noise in a bisect: whether each side repeats itself, before anything is blamed on a pair."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from verify.bisect.result import BisectResult, Finding, Verdict
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.verdict import SEVERITY, exit_code, worst
from verify.dumps.format import Dump
from verify.errors import ArgumentError
from verify.noise.measure import REPEATS, describe
from verify.noise.result import NoiseGroup, NoiseResult
from verify.noise.store import is_of

_ACCUSING = (Verdict.DEFECT, Verdict.OVERFLOW, Verdict.POST_LOGITS)
_SETTLE = (
    "find what does not repeat first: verify noise with more runs, fixed threads and batch, "
    "deterministic algorithms switched on"
)


def apply_noise(
    result: BisectResult,
    a: Dump,
    b: Dump,
    noises: Sequence[NoiseResult],
    accept: Collection[Verdict] = (),
    *,
    fails_on_flip: bool = False,
) -> BisectResult:
    """The result with what is known of the repeats of each side.

    A side that does not repeat is NON_REPEATABLE, and what a single pair accuses becomes
    UNRESOLVED. A side that does gets a line that says on how many runs that rests.

    Args:
        noises: each measured of the configuration of A or of B.

    Raises:
        ArgumentError: a noise result that belongs to neither side.
    """
    findings = list(result.findings)
    for noise in noises:
        sides = [name for name, dump in (("A", a), ("B", b)) if is_of(noise, dump)]
        if not sides:
            raise ArgumentError(
                "this noise was measured of another configuration than either run",
                where=noise.base,
                allowed="prompts, weights and settings of A or of B",
                hint=f"verify noise {a.path} (and repeats of it)",
            )
        named = " and ".join(sides)
        if noise.repeats.equal:
            findings.append(_repeats(named, noise))
        else:
            findings = [_open(finding, named) for finding in findings]
            findings.append(_varies(named, noise))
    findings.sort(key=lambda finding: -SEVERITY.index(finding.verdict))
    flipped = fails_on_flip and result.first_token is not None
    return msgspec.structs.replace(
        result,
        findings=findings,
        verdict=worst(findings),
        exit_code=exit_code(findings, accept, fails_on_flip=flipped),
    )


def _repeats(side: str, noise: NoiseResult) -> Finding:
    return Finding(
        verdict=Verdict.IDENTICAL,
        title=f"{side} repeats itself",
        reasons=[describe(noise.repeats), *_floors(noise)],
        numbers={"runs": noise.repeats.repeats + 1},
    )


def _varies(side: str, noise: NoiseResult) -> Finding:
    return Finding(
        verdict=decide(Measured(subject=Subject.REPEATS)),
        title=f"{side} does not repeat itself",
        reasons=[describe(noise.repeats), *_floors(noise)],
        taps=[tap.tap for tap in noise.repeats.taps],
        numbers={"runs": noise.repeats.repeats + 1},
        settle=[_SETTLE],
    )


def _open(finding: Finding, side: str) -> Finding:
    """An accusation that rests on one pair of runs, of which a side does not repeat."""
    if finding.verdict not in _ACCUSING:
        return finding
    reason = f"was {finding.verdict}, but {side} does not repeat itself and this is a single pair"
    return msgspec.structs.replace(
        finding, verdict=Verdict.UNRESOLVED, reasons=[reason, *finding.reasons]
    )


def _floors(noise: NoiseResult) -> list[str]:
    """The noise floor of every variation that was tried."""
    return [_floor(group) for group in noise.groups if group.name != REPEATS]


def _floor(group: NoiseGroup) -> str:
    if group.equal:
        return f"with {group.name}: equal in every bit"
    worst_tap = max(group.taps, key=lambda tap: tap.relative_l2, default=None)
    size = "" if worst_tap is None else (
        f", up to {worst_tap.relative_l2:.2g} relative L2 at {worst_tap.tap}"
    )  # fmt: skip
    flips = f", {len(group.flips)} of {group.positions} choices flip" if group.flips else ""
    return f"with {group.name}: {len(group.taps)} taps vary{size}{flips}"
