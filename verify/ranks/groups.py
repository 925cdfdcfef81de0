"""The records that several ranks made at one tap, and how they stand to the whole."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.layout import ATTRIBUTE, Layout, Layouts
from verify.errors import ArgumentError

Key = tuple[int, str, int]
"""Step, tap, occurrence."""

_ROW_AXES = frozenset("bts")


@dataclass(frozen=True, slots=True)
class Group:
    """Records of one tap in one step, one a rank, by rank."""

    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return self.records[0]

    def same_size(self) -> bool:
        return all(record.shape == self.first.shape for record in self.records)


def groups(dump: Dump) -> dict[Key, Group]:
    """Every tap of every step with the records of the ranks that have it, in execution order."""
    found: dict[Key, list[Record]] = defaultdict(list)
    for record in dump.records():
        found[record.step, record.tap, record.occurrence].append(record)
    return {
        key: Group(tuple(sorted(records, key=lambda r: r.rank))) for key, records in found.items()
    }


def layout_of(group: Group, given: Layouts, whole: Record | None) -> Layout | None:
    """The layout of a tap: as given, else as declared at capture, else seen from the shapes beside
    those of a run on one rank; None: not known.

    Args:
        whole: the record of the same tap in a run on one rank.

    Raises:
        ArgumentError: a layout names a dimension that the tensor does not have.
    """
    stated = given.of(group.first.tap)
    if stated is not None:
        return stated.of(len(group.first.shape))
    declared = group.first.attributes.get(ATTRIBUTE)
    if declared is not None:
        return Layout.parse(str(declared)).of(len(group.first.shape))
    if whole is None or len(whole.shape) != len(group.first.shape):
        return None
    return _seen(group, whole)


def _seen(group: Group, whole: Record) -> Layout | None:
    """Parts add up to the whole along one dimension, or each rank's tensor has its shape. Whether
    equal shapes are copies or parts of a sum, shapes do not say: copies have equal digests."""
    shapes = [record.shape for record in group.records]
    if group.same_size() and shapes[0] == whole.shape:
        return Layout("replicated")
    apart = [d for d, size in enumerate(whole.shape) if size != shapes[0][d]]
    if len(apart) != 1 or sum(shape[apart[0]] for shape in shapes) != whole.shape[apart[0]]:
        return None
    rest = [shape[: apart[0]] + shape[apart[0] + 1 :] for shape in shapes]
    return Layout("shard", apart[0]) if all(r == rest[0] for r in rest) else None


def shard_columns(group: Group, dim: int) -> tuple[np.ndarray, list[int]]:
    """Where the elements of a whole row stand among the rows of the ranks, one after another: the
    order, int64 [elements of the whole row], and the shape of the whole tensor.

    Raises:
        ArgumentError: the ranks divide positions or sequences, or their shapes do not go together.
    """
    first = group.first
    names = first.axes.split()
    if names[dim] in _ROW_AXES:
        raise ArgumentError(
            "the ranks hold different positions of this tap",
            where=first.tap,
            found=f"shard:{dim} is axis {names[dim]!r} of {first.axes!r}",
            allowed="a dimension that is no sequence and no position",
        )
    free = [d for d, name in enumerate(names) if name not in _ROW_AXES]
    sizes = tuple(tuple(record.shape[d] for d in free) for record in group.records)
    order = _order(sizes, free.index(dim))
    if order is None:
        raise ArgumentError(
            "the parts of the ranks do not go together",
            where=first.tap,
            found=", ".join(str(record.shape) for record in group.records),
            allowed=f"shapes that differ in dimension {dim} alone",
        )
    whole = list(first.shape)
    whole[dim] = sum(record.shape[dim] for record in group.records)
    return order, whole


@lru_cache(maxsize=256)
def _order(sizes: tuple[tuple[int, ...], ...], place: int) -> np.ndarray | None:
    """The order for rows of these sizes, cut at ``place``: the same for all records of a tap. None:
    the sizes do not go together."""
    starts = np.cumsum([0, *map(prod, sizes)])
    parts = [
        start + np.arange(prod(size), dtype=np.int64).reshape(size)
        for start, size in zip(starts.tolist(), sizes, strict=False)
    ]
    try:
        order = np.concatenate(parts, axis=place).reshape(-1)
    except ValueError:
        return None
    order.flags.writeable = False
    return order
