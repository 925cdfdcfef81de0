"""Marked rows of a run, and whether a row may have been computed from a marked one.

A row at position p of a sequence is taken to depend on the rows up to p of the same sequence in
each of its input records, and on every row without a position. That holds for causal models; where
the stricter reading (no row of any input is marked) gives the same answer, nothing rests on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.compare.index import PADDING, RowIndex
from verify.dumps.format.schema import Record

NEVER = int(np.iinfo(np.int64).max)

Limits = dict[int, int]
"""Sequence code -> first marked position; a sequence without marked rows is missing."""


class Marks:
    """Marked rows of one run, as the readers of its records see them."""

    def __init__(self, index: RowIndex, entries: NDArray[np.int64]) -> None:
        self.index = index
        self.limits = RecordLimits(index, entries)
        _carry_keys(index, self.limits)
        self._shared = index.sequences.index("") if "" in index.sequences else PADDING

    def of_inputs(self, number: int) -> Limits:
        """First marked position among the input records of a record, by sequence."""
        found: Limits = {}
        for place in self.inputs(number):
            found = merged(found, self.limits[place])
        return found

    def inputs(self, number: int) -> list[int]:
        """Places of the input records of a record. A key record is often made from the one before
        it of the same tap (the cache); that one holds the carried rows, and gave no new one."""
        record = self.index.records[number]
        places = input_records(self.index, record)
        if is_keyed(record):
            places = [place for place in places if self.index.records[place].tap != record.tap]
        return places

    def first_reached(self, limits: Limits, sequences: NDArray[np.int32]) -> NDArray[np.int64]:
        """For rows of these sequences the position from which they may have read a marked row."""
        if not limits:
            return np.full(len(sequences), NEVER)
        shared = limits.get(self._shared, NEVER)
        # A row without a sequence may have read everything.
        table = np.full(len(self.index.sequences) + 1, shared)
        for code, position in limits.items():
            table[code] = min(position, shared)
        table[self._shared] = -1
        return np.asarray(table[sequences])


def merged(a: Limits, b: Limits) -> Limits:
    """The earlier position of each sequence; one of the two itself where it says it all."""
    if not a or not b or a is b:
        return a or b
    return {code: min(a.get(code, NEVER), b.get(code, NEVER)) for code in a.keys() | b.keys()}


def is_keyed(record: Record) -> bool:
    """Whether rows of the record stand for key positions."""
    return "s" in record.axes.split()


def input_records(index: RowIndex, record: Record) -> list[int]:
    """Places of the records that a record was computed from."""
    read = [s.seq for s in record.inputs if s.kind == "record" and s.seq is not None]
    if not read:
        return []
    return list(index.records.numbers(np.array([record.rank]), np.array(read)).tolist())


class RecordLimits:
    """The first marked position of each sequence in each record: columns, and what was set since."""

    def __init__(self, index: RowIndex, entries: NDArray[np.int64]) -> None:
        record, sequence = index.record[entries], index.sequence[entries]
        order = np.lexsort((index.position[entries], sequence, record))
        record, sequence = record[order], sequence[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (record[1:] != record[:-1]) | (sequence[1:] != sequence[:-1])
        self._record, self._sequence = record[new], sequence[new]
        self._position = index.position[entries[order[new]]]
        self._set: dict[int, Limits] = {}

    def __getitem__(self, number: int) -> Limits:
        if number in self._set:
            return self._set[number]
        at = slice(*np.searchsorted(self._record, [number, number + 1]))
        return dict(zip(self._sequence[at].tolist(), self._position[at].tolist(), strict=True))

    def __setitem__(self, number: int, limits: Limits) -> None:
        self._set[number] = limits


def _carry_keys(index: RowIndex, limits: RecordLimits) -> None:
    """A key record lists only its new rows; who reads it also reads those of earlier records."""
    seen: dict[tuple[int, str], Limits] = {}
    for number in index.records.where(is_keyed).tolist():
        record = index.records[number]
        key = (record.rank, record.tap)
        limits[number] = seen[key] = merged(seen.get(key, {}), limits[number])
