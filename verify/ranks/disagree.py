"""Copies that ranks hold of one tensor and that are not equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.ranks.groups import Group
from verify.taps.words import same_places

_COLLECTIVES = ("c10d.", "_c10d_functional.", "_c10d_functional_autograd.")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The first rows of a replicated tap at which the ranks hold other bits.

    ``sides``: ranks that hold the same bits there, the largest group first. ``collective``: whether a
    collective formed the tensor on any rank, so that its contract says that all copies are equal.
    """

    tap: str
    step: int
    sequence: str
    position: int
    rows: int
    of_rows: int
    sides: tuple[tuple[int, ...], ...]
    collective: bool
    inputs_agree: bool

    def who(self) -> str:
        """The ranks in words."""
        texts = [", ".join(map(str, side)) for side in self.sides]
        names = [
            f"rank{'s' if len(side) > 1 else ''} {text}"
            for side, text in zip(self.sides, texts, strict=True)
        ]
        if len(self.sides) == 2 and len(self.sides[1]) < len(self.sides[0]):
            return f"{names[1]} against {names[0]}"
        return " against ".join(names)


def unequal_rows(dump: Dump, group: Group) -> np.ndarray | None:
    """Rows [rows] of a replicated tap at which not all ranks hold the same bits; None if the ranks
    hold different rows."""
    first, *others = (dump.rows(record) for record in group.records)
    apart = np.zeros(len(first), np.bool_)
    for other in others:
        if not same_places(first, other):
            return None
        apart |= first.digest != other.digest
    return apart


def describe(dump: Dump, group: Group, apart: np.ndarray, *, inputs_agree: bool) -> Disagreement:
    """What is known of a replicated tap whose rows ``apart`` are not equal."""
    row = int(np.flatnonzero(apart)[0])
    rows = [dump.rows(record) for record in group.records]
    by_bits: dict[int, list[int]] = {}
    for record, held in zip(group.records, rows, strict=True):
        by_bits.setdefault(int(held.digest[row]), []).append(record.rank)
    sides = sorted((tuple(ranks) for ranks in by_bits.values()), key=lambda s: (-len(s), s))
    return Disagreement(
        tap=group.first.tap,
        step=group.first.step,
        sequence=str(rows[0].sequence[row] or ""),
        position=int(rows[0].position[row]),
        rows=int(apart.sum()),
        of_rows=len(apart),
        sides=tuple(sides),
        collective=any(is_collective(record) for record in group.records),
        inputs_agree=inputs_agree,
    )


def is_collective(record: Record) -> bool:
    return any(op.startswith(_COLLECTIVES) for op in record.ops)
