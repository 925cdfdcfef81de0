"""The result in one or two sentences."""

from __future__ import annotations

from verify.bisect.result import Finding, Origin, TokenPosition, Verdict
from verify.bisect.tokens import TokenReport
from verify.compare.result import Comparison
from verify.compare.run import RowComparison


def summarise(
    compared: RowComparison,
    findings: list[Finding],
    tokens: TokenReport,
    origins: list[Origin],
) -> str:
    """What a reader needs who reads nothing else."""
    comparison = compared.comparison
    if all(tap.equal for tap in comparison.taps):
        return _equal(comparison, findings, len(tokens.positions))
    return f"{_tokens(tokens)}; {_begin(comparison, origins)}."


def _equal(comparison: Comparison, findings: list[Finding], tokens: int) -> str:
    digests = sum(tap.digest_rows for tap in comparison.taps)
    how = f" ({digests:,} rows by their digests)" if digests else ""
    chosen = f", and so are all {tokens} chosen tokens" if tokens else ""
    said = f"Every bit of {len(comparison.taps)} taps in {comparison.rows:,} rows is equal{how}"
    if not findings:
        return f"{said}{chosen}."
    if all(f.verdict is Verdict.INCOMPLETE for f in findings):
        return f"{said}{chosen}, as far as both runs go: {findings[0].title}."
    return f"{said}{chosen}; {_lower(findings[0].title)}."


def _tokens(tokens: TokenReport) -> str:
    first = tokens.first
    if first is None:
        count = len(tokens.positions)
        return f"All {count} compared token choices agree" if count else "No token was compared"
    return (
        f"Generated token {first.index} of {first.sequence} is {_token(first, first.chosen_a)} in A "
        f"and {_token(first, first.chosen_b)} in B{_closeness(first)}"
    )


def _token(position: TokenPosition, chosen: int) -> str:
    text = next((t.text for t in [*position.a, *position.b] if t.id == chosen and t.text), None)
    return f'"{text}"' if text else f"id {chosen}"


def _closeness(token: TokenPosition) -> str:
    if token.tie_a or token.tie_b:
        side = "both runs" if token.tie_a and token.tie_b else ("A" if token.tie_a else "B")
        return f", an exact tie of the best two logits in {side}"
    if token.margin_a == token.margin_a:
        return (
            f" (A's margin {token.margin_a:.3g}, logits shifted by up to {token.logit_shift:.3g})"
        )
    return ""


def _begin(comparison: Comparison, origins: list[Origin]) -> str:
    if not origins:
        tap = next(tap.tap for tap in comparison.taps if not tap.equal)
        return f"the first difference is observed at {tap}"
    first = origins[0]
    fit = f" ({first.fits[0].split(':')[0]})" if first.fits else ""
    more = len(origins) - 1
    others = f", and {more} more {'origin' if more == 1 else 'origins'}" if more else ""
    where = "begins" if first.proven else "is first observed"
    return f"the difference {where} at {first.tap}{fit}{others}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
