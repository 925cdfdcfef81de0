"""Which taps of a run a map presents under which names, and which stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from verify.taps.patterns import LAST, fill, match
from verify.taps.same import SameTensors
from verify.taps.types import Alone, Side, TapMap, TapRule


@dataclass(frozen=True, slots=True)
class Derived:
    """One tap of A as the map makes it from taps of B."""

    tap: str
    sources: tuple[str, ...]
    rule: TapRule


@dataclass(slots=True)
class Plan:
    """What becomes of every tap of B."""

    derived: list[Derived] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """Taps that keep their name because A has one of that name and no rule says otherwise."""
    open: dict[str, str] = field(default_factory=dict)
    """Tap of B that no rule uses -> the name that it is listed under."""
    alone: dict[str, Alone] = field(default_factory=dict)
    """Tap of B that the map says has no counterpart."""
    repeats: list[str] = field(default_factory=list)
    """Taps of B without a rule that hold the very tensors of taps with one, or of ``alone``."""


def plan(
    tap_map: TapMap,
    taps_a: Iterable[str],
    taps_b: Iterable[str],
    same_b: SameTensors | None = None,
) -> Plan:
    """Apply the rules to the tap names of two runs; of several rules for one tap of A the first one
    whose taps are all there counts.

    Args:
        same_b: which taps of B hold the same tensors.
    """
    wanted, there = list(dict.fromkeys(taps_a)), list(dict.fromkeys(taps_b))
    found = Plan()
    made: dict[str, Derived] = {}
    names, exists = set(wanted), set(there)
    for rule in tap_map.tap:
        of_rule: dict[str, tuple[int, Derived]] = {}
        for tap in there:
            if applied := _apply(rule, tap, exists):
                last, derived = applied
                if derived.tap in names and last >= of_rule.get(derived.tap, (last,))[0]:
                    of_rule[derived.tap] = applied
        for name, (_, derived) in of_rule.items():
            made.setdefault(name, derived)
    found.derived = list(made.values())
    used = {source for derived in found.derived for source in derived.sources}
    for tap in there:
        if tap in used:
            continue
        if declared := declared_alone(tap_map, "b", tap):
            found.alone[tap] = declared
        elif tap in names and tap not in made:
            found.same.append(tap)
        else:
            found.open[tap] = f"B: {tap}" if tap in names else tap
    shown = used | set(found.same) | set(found.alone)
    for tap in list(found.open) if same_b is not None else ():
        if same_b is not None and same_b.held_by(tap, shown) is not None:
            del found.open[tap]
            found.repeats.append(tap)
    return found


def declared_alone(tap_map: TapMap, side: Side, tap: str) -> Alone | None:
    """The line of the map that says that a tap has no counterpart."""
    for line in tap_map.alone:
        if line.side == side and line.tap is not None and fnmatchcase(tap, line.tap):
            return line
    return None


def _apply(rule: TapRule, tap: str, exists: set[str]) -> tuple[int, Derived] | None:
    """What a rule makes of a tap as its first source, and the number that ``{last}`` stands for."""
    first, *others = rule.sources
    numbers = match(first, tap)
    if numbers is None:
        return None
    sources = (tap, *(fill(pattern, numbers) for pattern in others))
    if not exists.issuperset(sources):
        return None
    return numbers.get(LAST, 0), Derived(fill(rule.a, numbers), sources, rule)
