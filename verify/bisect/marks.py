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
        self.limits = _first_positions(index, entries)
        _carry_keys(index, self.limits)
        self._places = {(r.rank, r.seq): number for number, r in enumerate(index.records)}
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
        places = [
            self._places[record.rank, source.seq]
            for source in record.inputs
            if source.kind == "record" and source.seq is not None
        ]
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


def _first_positions(index: RowIndex, entries: NDArray[np.int64]) -> list[Limits]:
    limits: list[Limits] = [{} for _ in index.records]
    order = np.lexsort((index.position[entries], index.sequence[entries], index.record[entries]))
    ordered = entries[order]
    record, sequence = index.record[ordered], index.sequence[ordered]
    new = np.flatnonzero(np.diff(record).astype(bool) | np.diff(sequence).astype(bool)) + 1
    for at in np.concatenate([np.arange(min(1, len(ordered))), new]):
        limits[int(record[at])][int(sequence[at])] = int(index.position[ordered[at]])
    return limits


def _carry_keys(index: RowIndex, limits: list[Limits]) -> None:
    """A key record lists only its new rows; who reads it also reads those of earlier records."""
    seen: dict[tuple[int, str], Limits] = {}
    for number, record in enumerate(index.records):
        if is_keyed(record):
            key = (record.rank, record.tap)
            limits[number] = seen[key] = merged(seen.get(key, {}), limits[number])
