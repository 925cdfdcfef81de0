"""The findings about taps that a check answered for, and that are no origins."""

from __future__ import annotations

from collections.abc import Iterable

from verify.bisect.fronts import Front
from verify.bisect.local import LocalFinding
from verify.bisect.result import Finding, Verdict
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.statements import Numbers, list_taps


def state_local(found: Iterable[LocalFinding], fronts: dict[str, Front]) -> list[Finding]:
    """What checkers say about taps whose inputs differ as well; equal titles go together.

    Args:
        fronts: taps at which NaN or infinities begin.
    """
    groups: dict[tuple[str, ...], list[LocalFinding]] = {}
    for each in found:
        key = (each.verdict, each.title or each.tap)
        groups.setdefault(key, []).append(each)
    return [_state_local(group, fronts) for group in groups.values()]


def _state_local(group: list[LocalFinding], fronts: dict[str, Front]) -> Finding:
    worst = max(group, key=lambda each: each.used)
    taps = [each.tap for each in group]
    title = worst.title or f"what it adds itself is {_BUDGET.get(worst.verdict, 'open')}"
    numbers: Numbers = {}
    if worst.error or worst.bound.value:
        numbers = {"error": worst.error, "bound": worst.bound.value, "bound used": worst.used}
    if worst.share:
        numbers = {"bound used": worst.used}
    if len(group) > 1:
        numbers = {"taps": len(group), **numbers}
    lead = "" if len(group) == 1 or not worst.used else f"{worst.tap} uses most: "
    return Finding(
        verdict=decide(Measured(subject=Subject.PLACE, local=worst.verdict)),
        title=f"{list_taps(taps)}: {title}",
        reasons=[
            *(f"{tap}: {fronts[tap].describe()}" for tap in taps if tap in fronts),
            f"{lead}{worst.reason}",
            *(f"what it is: {fit}" for fit in worst.fits),
            f"bound: {worst.bound.why}",
        ],
        taps=taps,
        support=worst.support,
        numbers=numbers,
        sizes={each.tap: each.size for each in group if each.size},
    )


_BUDGET = {Verdict.ROUNDING: "within its budget", Verdict.DEFECT: "beyond its budget"}
