"""Which row of A stands against which row of B: by identity, never by place in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.index import PADDING, Names, RowIndex, index_rows
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record

Entries = NDArray[np.int64]


@dataclass(slots=True)
class Alignment:
    """Rows that both runs hold, and rows that stand alone.

    ``rows_a[i]`` of run A matches ``rows_b[i]`` of run B (entries of the two indexes), sorted by
    tap and then by A's execution order.
    """

    a: RowIndex
    b: RowIndex
    rows_a: Entries
    rows_b: Entries
    alone_a: Entries
    alone_b: Entries
    repeated_a: Entries
    """Rows whose identity occurs more than once in their run: nothing says which is meant."""
    repeated_b: Entries


def align(dump_a: Dump, dump_b: Dump) -> Alignment:
    """Match all rows of two dumps on (sequence, position, tap, occurrence, visit, rank).

    Ranks take part as they are: two runs on equally many ranks match rank by rank, so exchanged
    ranks differ instead of being paired away. Padding rows take no part.

    Raises:
        CorruptDumpError: rows are not what was stored.
    """
    sequences = Names()
    a, b = index_rows(dump_a, sequences), index_rows(dump_b, sequences)
    a.sequences = b.sequences = sequences.names()
    groups = Names()
    keys_a, keys_b = _keys(a, b, [groups.code(_group(r)) for r in a.records],
                           [groups.code(_group(r)) for r in b.records])  # fmt: skip
    sorted_a, sorted_b = _Sorted(keys_a, a), _Sorted(keys_b, b)
    rows_a, rows_b = sorted_a.join(sorted_b)
    order = np.lexsort((rows_a, _tap_order(a)[rows_a]))
    return Alignment(
        a=a,
        b=b,
        rows_a=rows_a[order],
        rows_b=rows_b[order],
        alone_a=sorted_a.without(rows_a),
        alone_b=sorted_b.without(rows_b),
        repeated_a=sorted_a.repeated,
        repeated_b=sorted_b.repeated,
    )


def _group(record: Record) -> tuple[str, int, int]:
    return (record.tap, record.occurrence, record.rank)


def _tap_order(index: RowIndex) -> NDArray[np.int64]:
    """For each row the number of its tap, counted by first appearance in execution order."""
    taps = Names()
    codes = np.array([taps.code(record.tap) for record in index.records], np.int64)
    return codes[index.record]


def _keys(
    a: RowIndex, b: RowIndex, groups_a: list[int], groups_b: list[int]
) -> tuple[Entries, Entries]:
    """One integer a row, equal exactly where the identities are."""
    sides = [_columns(a, groups_a), _columns(b, groups_b)]
    lows, bits = [], []
    for columns in zip(*sides, strict=True):
        low = min(int(column.min(initial=0)) for column in columns)
        high = max(int(column.max(initial=0)) for column in columns)
        lows.append(low)
        bits.append((high - low).bit_length())
    if sum(bits) > 63:  # identities too wide to pack: number the distinct ones instead
        joint = np.concatenate([np.stack(columns, axis=1) for columns in sides])
        _, keys = np.unique(joint, axis=0, return_inverse=True)
        return keys.reshape(-1)[: len(a)], keys.reshape(-1)[len(a) :]
    return _packed(sides[0], lows, bits), _packed(sides[1], lows, bits)


def _columns(index: RowIndex, groups: list[int]) -> list[NDArray[Any]]:
    group = np.array([*groups, 0], np.int32)[index.record]
    return [group, index.sequence, index.position, index.visit]


def _packed(columns: list[NDArray[Any]], lows: list[int], bits: list[int]) -> Entries:
    keys = np.zeros(len(columns[0]), np.int64)
    for column, low, width in zip(columns, lows, bits, strict=True):
        keys <<= width
        keys += column
        keys -= low
    return keys


class _Sorted:
    """The rows of one run in the order of their keys: those whose key occurs once, and the rest."""

    def __init__(self, keys: Entries, index: RowIndex) -> None:
        rows = np.flatnonzero(index.sequence != PADDING)
        rows = rows[np.argsort(keys[rows], kind="stable")]
        ordered = keys[rows]
        same = ordered[1:] == ordered[:-1]
        once = np.ones(len(rows), np.bool_)
        once[1:] &= ~same
        once[:-1] &= ~same
        self.rows, self.keys = rows[once], ordered[once]
        self.repeated = np.sort(rows[~once])

    def join(self, other: _Sorted) -> tuple[Entries, Entries]:
        """Rows of both sides with equal keys."""
        at = np.searchsorted(other.keys, self.keys)
        at[at == len(other.keys)] = 0
        found = other.keys[at] == self.keys if len(other.keys) else np.zeros(len(at), np.bool_)
        return self.rows[found], other.rows[at[found]]

    def without(self, matched: Entries) -> Entries:
        """Rows that stand alone, in execution order."""
        left = np.zeros(self.rows.max(initial=-1) + 1, np.bool_)
        left[self.rows] = True
        left[matched] = False
        return np.flatnonzero(left)


def record_pairs(
    alignment: Alignment, at: NDArray[np.int64]
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """The distinct (record of A, record of B) of matched rows in A's order, and which each has."""
    a, b = alignment.a, alignment.b
    width = len(b.records) + 1
    keys = a.record[alignment.rows_a[at]].astype(np.int64) * width
    keys += b.record[alignment.rows_b[at]]
    distinct, inverse = np.unique(keys, return_inverse=True)
    return [divmod(int(key), width) for key in distinct], inverse.reshape(-1)


def rows_by_pair(alignment: Alignment, at: Entries) -> Iterator[tuple[int, int, Entries]]:
    """Matched rows ``at`` by (record of A, record of B), in A's execution order."""
    pairs, inverse = record_pairs(alignment, at)
    order = np.argsort(inverse, kind="stable")
    cuts = np.searchsorted(inverse[order], np.arange(1, len(pairs)))
    for (a, b), some in zip(pairs, np.split(order, cuts), strict=False):
        yield a, b, at[some]
