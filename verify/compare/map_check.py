"""A tap map held against two runs: does each rule relate tensors that are alike?"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from verify.compare.result import TapComparison
from verify.compare.run import compare
from verify.dumps.format import Dump
from verify.taps.apply import Mapped, apply_map
from verify.taps.fits import NEAR
from verify.taps.patterns import match
from verify.taps.types import TapMap, TapRule

State = Literal["equal", "near", "apart", "unused", "not presented"]
"""All rows equal; near enough to be the same tensor of two implementations; further apart than that;
no taps for it in these runs, or another rule came first; or the run does not keep what it takes."""


class RuleCheck(msgspec.Struct, kw_only=True, frozen=True):
    """One rule of a map, or the taps of one name on both sides, over all its rows."""

    a: str
    b: str
    how: str
    state: State
    taps: int
    rows: int
    differing_rows: int
    relative_l2: float | None
    """Of the tap that differs most."""
    worst: str
    """That tap of A."""
    reason: str = ""


class MapCheck(msgspec.Struct, kw_only=True, frozen=True):
    """A map and two runs."""

    a: str
    b: str
    tap_map: str
    rules: list[RuleCheck]
    open_a: list[str]
    """Taps of A that the map neither presents nor declares to be alone."""
    open_b: list[str]
    alone_a: list[str]
    alone_b: list[str]
    notes: list[str]

    @property
    def exit_code(self) -> int:
        """1: a rule relates what is not alike; 3: taps stay open; 0: neither."""
        if any(rule.state == "apart" for rule in self.rules):
            return 1
        missing = any(rule.state == "not presented" for rule in self.rules)
        return 3 if self.open_a or self.open_b or missing else 0


def check_map(a: Dump, b: Dump, tap_map: TapMap) -> MapCheck:
    """Compare both runs through a map, rule by rule.

    Raises:
        ArgumentError: a rule does not fit the runs.
        CorruptDumpError: words or rows are not those that were stored.
    """
    mapped = apply_map(a, b, tap_map)
    result = compare(mapped.a, mapped.b)
    by_tap = {tap.tap: tap for tap in result.taps}
    rules = [_of_rule(rule, mapped, by_tap) for rule in tap_map.tap]
    same = [by_tap[tap] for tap in mapped.plan.same if tap in by_tap]
    if same:
        rules.append(_summary("taps of one name", "the same", "as they are", same))
    lacking = dict.fromkeys((u.side, u.tap) for u in result.unmatched)
    made = {derived.tap for derived in mapped.plan.derived}
    return MapCheck(
        a=str(a.path),
        b=str(b.path),
        tap_map=tap_map.name,
        rules=rules,
        open_a=[tap for side, tap in lacking if side == "a" and tap not in made],
        open_b=[tap for side, tap in lacking if side == "b" and tap not in by_tap],
        alone_a=list(mapped.alone),
        alone_b=list(mapped.plan.alone),
        notes=result.notes,
    )


def _of_rule(rule: TapRule, mapped: Mapped, by_tap: dict[str, TapComparison]) -> RuleCheck:
    b = " + ".join(rule.sources) if rule.join == "add" else ", ".join(rule.sources)
    taps = [derived.tap for derived in mapped.plan.derived if derived.rule is rule]
    found = [by_tap[tap] for tap in taps if tap in by_tap]
    if found:
        return _summary(rule.a, b, say_how(rule), found)
    reasons = [mapped.not_made[tap] for tap in taps if tap in mapped.not_made]
    shadowed = [d.tap for d in mapped.plan.derived if match(rule.a, d.tap) is not None]
    reason = reasons[0] if reasons else "an earlier rule came first" if shadowed else "no such taps"
    if taps and not reasons:
        reason = "no rows in common"
    return RuleCheck(
        a=rule.a,
        b=b,
        how=say_how(rule),
        state="not presented" if taps else "unused",
        taps=0,
        rows=0,
        differing_rows=0,
        relative_l2=None,
        worst="",
        reason=reason,
    )


def _summary(a: str, b: str, how: str, taps: list[TapComparison]) -> RuleCheck:
    worst = max(taps, key=lambda tap: _size(tap))
    differing = sum(tap.differing_rows for tap in taps)
    # A sketch estimates a size to some tenths; both bounds are far from what unlike tensors give.
    state: State = "equal" if not differing else "near" if _size(worst) <= NEAR else "apart"
    return RuleCheck(
        a=a,
        b=b,
        how=how,
        state=state,
        taps=len(taps),
        rows=sum(tap.rows for tap in taps),
        differing_rows=differing,
        relative_l2=worst.relative_l2,
        worst=worst.tap,
    )


def _size(tap: TapComparison) -> float:
    size = tap.relative_l2
    if not tap.differing_rows:
        return 0.0
    return math.inf if size is None or math.isnan(size) else size


def say_how(rule: TapRule) -> str:
    """What a rule does to rows, in words."""
    words = []
    if rule.join is not None:
        words.append("added" if rule.join == "add" else "side by side")
    if rule.take is not None:
        words.append(f"part {rule.take} of {' '.join(rule.split or ())}")
    if rule.columns is not None:
        words.append(f"elements {':'.join(rule.columns)}")
    if rule.heads is not None:
        words.append(f"heads {rule.heads}")
    if rule.dims is not None:
        words.append(f"axes {' '.join(rule.dims)} in order {rule.order}")
    if rule.occurrence is not None:
        words.append(f"record {rule.occurrence}")
    return ", ".join(words) or "as it is"
