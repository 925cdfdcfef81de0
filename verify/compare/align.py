"""Which row of A stands against which row of B: by identity, never by place in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.index import PADDING, Names, RowIndex, index_rows
from verify.dumps.format import Dump
from verify.dumps.format.records import small

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
    keys_a, keys_b = _keys(a, b)
    sorted_a = _Sorted(keys_a, a)
    alike = _alike(keys_a, keys_b) and _alike(a.sequence, b.sequence)
    sorted_b = sorted_a if alike else _Sorted(keys_b, b)
    del keys_a, keys_b
    if alike:  # as two captures of one program: half of the memory
        b.sequence, b.position, b.visit = a.sequence, a.position, a.visit
        if _alike(a.starts, b.starts):
            b.starts, b.record = a.starts, a.record
    rows_a, rows_b = sorted_a.join(sorted_b)
    order = _by_tap(a, rows_a)
    ordered = small(rows_a[order])
    return Alignment(
        a=a,
        b=b,
        rows_a=ordered,
        rows_b=ordered if rows_b is rows_a else small(rows_b[order]),
        alone_a=sorted_a.without(rows_a),
        alone_b=sorted_b.without(rows_b),
        repeated_a=sorted_a.repeated,
        repeated_b=sorted_b.repeated,
    )


def _alike(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return len(a) == len(b) and bool((a == b).all())


def _by_tap(index: RowIndex, rows: Entries) -> Entries:
    """Order of ``rows`` by tap, counted by first appearance, and then by execution."""
    order = np.argsort(rows, kind="stable")
    numbers = {tap: number for number, tap in enumerate(index.records.tap_names)}
    # Kinds that no record has (of another part of the dump) are in no row.
    least = np.min_scalar_type(len(numbers))
    codes = index.records.by_kind(lambda kind: numbers.get(kind.tap, 0), least)
    return order[np.argsort(codes[index.record[rows[order]]], kind="stable")]


def _keys(a: RowIndex, b: RowIndex) -> tuple[Entries, Entries]:
    """One integer a row, equal exactly where the identities are."""
    groups = Names()
    sides = [_columns(a, groups), _columns(b, groups)]
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


def _columns(index: RowIndex, groups: Names) -> list[NDArray[Any]]:
    """What identifies a row; ``groups`` numbers tap and occurrence in both runs."""
    group = index.records.by_kind(lambda kind: groups.code(kind.key), np.int32)
    rank = index.records.rank
    return [
        group[index.record],
        rank[index.record] if rank.any() else np.broadcast_to(np.int32(0), len(index)),
        index.sequence,
        index.position,
        index.visit,
    ]


def _packed(columns: list[NDArray[Any]], lows: list[int], bits: list[int]) -> Entries:
    keys = np.zeros(len(columns[0]), np.int64)
    for column, low, width in zip(columns, lows, bits, strict=True):
        keys <<= width
        if width:
            keys += column
            keys -= low
    return keys


class _Sorted:
    """The rows of one run in the order of their keys: those whose key occurs once, and the rest."""

    def __init__(self, keys: Entries, index: RowIndex) -> None:
        padded = (index.sequence == PADDING).any()
        rows = np.flatnonzero(index.sequence != PADDING) if padded else None
        order = np.argsort(keys if rows is None else keys[rows])
        rows = order if rows is None else rows[order]
        ordered = keys[rows]
        same = ordered[1:] == ordered[:-1]
        once = np.ones(len(rows), np.bool_)
        once[1:] &= ~same
        once[:-1] &= ~same
        if once.all():
            self.rows, self.keys, self.repeated = rows, ordered, rows[:0]
            return
        self.rows, self.keys = rows[once], ordered[once]
        self.repeated = np.sort(rows[~once])

    def join(self, other: _Sorted) -> tuple[Entries, Entries]:
        """Rows of both sides with equal keys."""
        if other is self:
            return self.rows, self.rows
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


def kind_pairs(
    alignment: Alignment, at: NDArray[Any] | slice
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """The distinct (record of A, record of B) of matched rows ``at``, as far as they differ in more
    than what records of one kind do not share (:meth:`Records.by_kind`) or in whether words were
    kept: an example of each, and which each row has."""
    a, b = alignment.a, alignment.b
    width = 4 * max(1, len(b.records.kinds))
    record_a, record_b = a.record[alignment.rows_a[at]], b.record[alignment.rows_b[at]]
    keys = a.records.kind[record_a] * np.int64(width)
    keys += 4 * b.records.kind[record_b].astype(np.int64)
    keys += 2 * a.full[record_a].astype(np.int8) + b.full[record_b]
    first, inverse = distinct(keys, width * max(1, len(a.records.kinds)))
    return list(zip(record_a[first].tolist(), record_b[first].tolist(), strict=True)), inverse


_TABLE = 1 << 24
"""Keys below this are counted in a table instead of sorted."""


def distinct(keys: Entries, limit: int) -> tuple[Entries, NDArray[np.int64]]:
    """Where each distinct key below ``limit`` occurs first, in ascending order of the keys, and which
    key stands at each place."""
    if limit > _TABLE:
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return first, inverse.reshape(-1)
    place = np.full(limit, -1, np.int64)
    place[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)  # the last one written is the first
    present = np.flatnonzero(place >= 0)
    first = place[present]
    place[present] = np.arange(len(present))
    return first, place[keys]


def rows_by_pair(alignment: Alignment, at: Entries) -> Iterator[tuple[int, int, Entries]]:
    """Matched rows ``at`` by (record of A, record of B), in A's execution order."""
    record_a = alignment.a.record[alignment.rows_a[at]]
    record_b = alignment.b.record[alignment.rows_b[at]]
    keys = record_a * np.int64(len(alignment.b.records) + 1) + record_b
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    cuts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    del keys
    bounds = [0, *cuts.tolist(), len(at)] if len(at) else []
    for start, stop in pairwise(bounds):
        some = order[start:stop]
        yield int(record_a[some[0]]), int(record_b[some[0]]), at[some]


def rows_by_tap(alignment: Alignment, at: Entries) -> dict[str, Entries]:
    """Matched rows ``at`` by tap, the taps in A's execution order of these rows, and so the rows."""
    index = alignment.a
    names: list[str] = list(dict.fromkeys(kind.tap for kind in index.records.kinds))
    place = {tap: number for number, tap in enumerate(names)}
    codes = index.records.by_kind(lambda kind: place[kind.tap], np.int64)
    entries = alignment.rows_a[at]
    order = np.argsort(entries, kind="stable")
    of_row = codes[index.record[entries[order]]].astype(np.min_scalar_type(len(names)))
    by_tap = np.argsort(of_row, kind="stable")
    cuts = np.flatnonzero(np.diff(of_row[by_tap])) + 1
    groups = [some for some in np.split(order[by_tap], cuts) if some.size]
    groups.sort(key=lambda some: int(entries[some[0]]))
    return {names[codes[index.record[entries[some[0]]]]]: at[some] for some in groups}
