"""Taps of all layers taken together: what is proposed is proposed for a family, so that layers are
matched by their numbers and never by their values."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from verify.taps.sampling import Tap

LOOKED_AT = 6
"""Layers of a family whose values are looked at."""


@dataclass(slots=True)
class Family:
    """Taps that differ in the number of their layer only; a tap without a number is one of its
    own."""

    template: str
    place: str
    members: dict[int | None, Tap]

    @property
    def any(self) -> Tap:
        return next(iter(self.members.values()))

    @property
    def is_single(self) -> bool:
        return "{n}" not in self.template

    def partner(self, number: int | None, shift: int) -> Tap | None:
        """The tap of the layer ``number + shift``."""
        return self.members.get(None if number is None else number + shift)

    def sample(self) -> list[int | None]:
        """Numbers of the first, the middle and the last layers."""
        numbers = list(self.members)
        if len(numbers) <= LOOKED_AT:
            return numbers
        middle = len(numbers) // 2
        return [*numbers[:3], numbers[middle], *numbers[-2:]]

    def only(self, number: int | None) -> Family:
        """One member, as a family of its own."""
        tap = self.members[number]
        return Family(tap.name, self.place, {None: tap})


def families(taps: list[Tap]) -> list[Family]:
    """Taps by template, record of the step, dtype and row length, in the order of execution."""
    found: dict[tuple[str, str, str, int], dict[int | None, Tap]] = defaultdict(dict)
    for tap in sorted(taps, key=lambda t: t.order):
        key = (tap.template, tap.place, tap.record.dtype, tap.row_length)
        found[key][tap.number] = tap
    return [
        Family(template, place, dict(sorted(members.items(), key=lambda m: m[0] or 0)))
        for (template, place, _, _), members in found.items()
    ]
