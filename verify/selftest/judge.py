"""Was the report right? The only place that knows what was planted."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from verify.bisect.result import BisectResult, Finding, Verdict
from verify.selftest.fault import Fault, Place
from verify.selftest.result import Trial
from verify.selftest.subject import LAYERS

ACCUSING = (Verdict.DEFECT, Verdict.OVERFLOW)
"""Verdicts that call an operation broken."""

HARMLESS = (Verdict.IDENTICAL, Verdict.ROUNDING)


def accused(result: BisectResult) -> list[str]:
    """Taps that the report calls broken, in execution order as far as growth knows it."""
    order = {point.tap: point.order for point in result.growth}
    taps = [tap for f in result.findings if f.verdict in ACCUSING for tap in f.taps]
    return sorted(dict.fromkeys(taps), key=lambda tap: order.get(tap, -1))


def judge_fault(
    fault: Fault, place: Place, result: BisectResult, heads: int, trial: Trial
) -> Trial:
    """Fill in how the report about a planted fault did.

    Args:
        heads: query heads that share a key head.
        trial: what was tried.
    """
    import msgspec

    wanted = fault.first_taps(place, LAYERS)
    blamed = accused(result)
    named = [f for f in result.findings if f.verdict not in HARMLESS]
    first = _first(result, named)
    return msgspec.structs.replace(
        trial,
        verdict=str(result.verdict),
        blamed=blamed,
        changed=result.verdict is not Verdict.IDENTICAL,
        found=result.verdict not in HARMLESS,
        right_tap=bool(wanted & set(blamed[:1] or first)),
        right_verdict=result.verdict in fault.verdicts,
        right_support=_support(fault, place, named, wanted, heads),
        false_blame=any(tap not in wanted for tap in blamed),
    )


def judge_innocent(result: BisectResult, trial: Trial) -> Trial:
    """An innocent pair: nothing may be called broken."""
    import msgspec

    blamed = accused(result)
    return msgspec.structs.replace(
        trial,
        verdict=str(result.verdict),
        blamed=blamed,
        changed=result.verdict is not Verdict.IDENTICAL,
        found=result.verdict not in HARMLESS,
        false_blame=bool(blamed),
    )


def _first(result: BisectResult, named: list[Finding]) -> list[str]:
    """The first tap of the findings that are not harmless, where nothing is accused."""
    order = {point.tap: point.order for point in result.growth}
    taps = [tap for f in named for tap in f.taps]
    return sorted(taps, key=lambda tap: order.get(tap, len(order)))[:1]


def _support(
    fault: Fault, place: Place, named: list[Finding], wanted: AbstractSet[str], heads: int
) -> bool | None:
    if not fault.heads:
        return None
    first = place.head * heads
    texts = [f.support for f in named if wanted & set(f.taps)]
    ways = (f"head {first} ", f"heads {first} to {first + heads - 1} ", f"heads from {first} on ")
    listed = f"heads {', '.join(str(first + i) for i in range(heads))} "
    return any(way in f"{text} " for text in texts for way in (*ways, listed))
