"""Parts of a result put together by what they have in common, in the order of the result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from verify.bisect.result import GrowthPoint


class _Sequenced(Protocol):
    @property
    def sequence(self) -> str: ...


Item = TypeVar("Item", bound=_Sequenced)


def by_sequence(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Sequence id -> its items."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.sequence, []).append(item)
    return groups


@dataclass(frozen=True, slots=True)
class Stage:
    """A layer with its taps, or one tap outside the layers."""

    layer: int | None
    points: list[GrowthPoint]

    @property
    def largest(self) -> GrowthPoint:
        return max(self.points, key=lambda point: severity(point.relative_l2))

    @property
    def first_difference(self) -> GrowthPoint | None:
        return next((point for point in self.points if point.relative_l2 != 0), None)


def by_stage(points: Iterable[GrowthPoint]) -> list[Stage]:
    """The stages of the model in execution order: neighbouring taps of one layer together."""
    stages: list[Stage] = []
    for point in points:
        if stages and point.layer is not None and stages[-1].layer == point.layer:
            stages[-1].points.append(point)
        else:
            stages.append(Stage(point.layer, [point]))
    return stages


def severity(value: float) -> float:
    """For ordering differences: NaN counts as the largest."""
    return math.inf if math.isnan(value) else value
