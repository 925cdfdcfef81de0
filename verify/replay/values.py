"""The rows of one run, looked up for the records of another: by identity, as runs align."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment, align
from verify.compare.context import divergence, other_context
from verify.compare.elements import floating_values
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.formats import encode, get_format

Words = NDArray[Any]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a record shall hold: words of some of its listed rows, in its own format.

    ``rows``: numbers into its row matrix; ``words`` [rows, row_length]; ``entries``: rows of the
    run that they come from; ``exact`` is False where a cast to the record's format lost bits.
    """

    rows: Rows
    words: Words
    entries: Rows
    exact: bool


class Values:
    """Rows of the run ``values`` for the records of the run ``schedule``."""

    def __init__(self, schedule: RowIndex, values: RowIndex, partner: Rows) -> None:
        self.schedule = schedule
        self.values = values
        self._partner = partner
        self._numbers = {
            (r.step, r.tap, r.occurrence): n
            for n, r in enumerate(schedule.records)
            if r.rank == (schedule.records[0].rank if schedule.records else 0)
        }
        self._kept = np.array(
            [values.dump.holder(record).kept == "full" for record in values.records] or [False]
        )

    def number(self, step: int, tap: str, occurrence: int) -> int | None:
        """Place of a record of the schedule in its index."""
        return self._numbers.get((step, tap, occurrence))

    def record(self, number: int) -> Record:
        return self.schedule.records[number]

    def wanted(self, number: int) -> Wanted | None:
        """The rows that the other run has for this record; None without any."""
        record = self.record(number)
        entries = self._partner[self.schedule.entries(number)]
        rows = np.flatnonzero(entries >= 0)
        if not rows.size:
            return None
        source = entries[rows]
        numbers = self.values.record[source]
        good = self._kept[numbers]
        first = self.values.records[int(numbers[0])]
        good &= np.array([self._fits(int(n), record, first) for n in numbers])
        rows, source = rows[good], source[good]
        if not rows.size:
            return None
        words, exact = recast(read_entries(self.values, source), first.dtype, record.dtype)
        return Wanted(rows, words, source, exact)

    def own(self, number: int, rows: Rows) -> Words | None:
        """The schedule's own words of rows of a record; None where it kept none."""
        record = self.record(number)
        if self.schedule.dump.holder(record).kept != "full":
            return None
        start = self.schedule.entries(number).start
        return read_entries(self.schedule, start + rows)

    def values_record(self, wanted: Wanted) -> Record:
        return self.values.records[int(self.values.record[wanted.entries[0]])]

    def _fits(self, number: int, record: Record, first: Record) -> bool:
        found = self.values.records[number]
        return found.row_length == record.row_length and found.dtype == first.dtype


def recast(words: Words, source: str, target: str) -> tuple[Words, bool]:
    """Words in another format, rounded once; and whether every value stayed what it was."""
    if source == target:
        return words, True
    values = floating_values(words, get_format(source))
    cast = encode(values, target)
    return cast, bool(np.array_equal(floating_values(cast, get_format(target)), values))


def both_ways(a: Dump, b: Dump) -> tuple[Alignment, Values, Values]:
    """The alignment; A's rows for B's records; and B's rows for A's."""
    found = align(a, b)
    # Behind a flipped token the rows are those of another text: nothing to force there.
    alike = ~other_context(found, divergence(found))
    rows_a, rows_b = found.rows_a[alike], found.rows_b[alike]
    return (
        found,
        Values(found.b, found.a, _partners(len(found.b), rows_b, rows_a)),
        Values(found.a, found.b, _partners(len(found.a), rows_a, rows_b)),
    )


def itself(index: RowIndex) -> Values:
    """A run's own rows for its own records."""
    return Values(index, index, np.arange(len(index), dtype=np.int64))


def _partners(size: int, rows: Rows, partners: Rows) -> Rows:
    found = np.full(size, -1, np.int64)
    found[rows] = partners
    return found
