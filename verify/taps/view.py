"""A run as a tap map presents it: another run's names and layouts, its own numbers.

Nothing is copied: words are read when they are asked for, block by block, and every stored tensor
is verified as it would be without a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from verify.dumps.format import Dump, TokenTrack
from verify.dumps.format.records import Records
from verify.dumps.format.row_table import RowTable
from verify.dumps.format.schema import Manifest, Record, Rows
from verify.dumps.format.tokens import token_tracks
from verify.errors import ArgumentError
from verify.taps import words
from verify.taps.words import Making


@dataclass(slots=True)
class Presented:
    """One record of the view: its description, and how its rows are made."""

    record: Record
    making: Making


class View(Dump):
    """A dump whose records are presented under other names; it reads like a dump.

    Args:
        stored: the dump itself.
        manifest: as presented.
        presented: the records, each rank in execution order, ``seq`` unique on its rank.
        notes: for people, beside those of the dump.
    """

    def __init__(
        self, stored: Dump, manifest: Manifest, presented: list[Presented], notes: list[str]
    ) -> None:
        self.stored = stored
        self.path = stored.path
        self.manifest = manifest
        self.problems = [*stored.problems, *notes]
        self._presented = {(p.record.rank, p.record.seq): p for p in presented}

    @property
    def complete(self) -> bool:
        return self.stored.complete

    @property
    def ranks(self) -> list[int]:
        return self.stored.ranks

    @property
    def total_bytes(self) -> int:
        return self.stored.total_bytes

    @property
    def part_count(self) -> int:
        return self.stored.part_count

    @cached_property
    def _ordered(self) -> list[Record]:
        found = [presented.record for presented in self._presented.values()]
        return sorted(found, key=lambda r: (r.step, r.epoch, r.seq, r.rank))

    def records(self, rank: int | None = None) -> list[Record]:
        """As :meth:`Dump.records`, under the presented names."""
        if rank is None:
            return list(self._ordered)
        return [p.record for p in self._presented.values() if p.record.rank == rank]

    @property
    def presented(self) -> list[Presented]:
        """The records and how they are made."""
        return list(self._presented.values())

    @cached_property
    def _columns(self) -> Records:
        return Records.of(self._ordered)

    def table(self) -> Records:
        return self._columns

    def row_tables(self) -> Iterator[tuple[np.ndarray, RowTable]]:
        """As :meth:`Dump.row_tables`, a record at a time."""
        for number, record in enumerate(self._ordered):
            if record.same_as is None:
                yield np.array([number]), RowTable.of(self.rows(record), record.seq)

    def sketches(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        found = []
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            sketch = self.rows(self._ordered[number]).sketch
            assert sketch is not None
            found.append(sketch[row])
        return np.array(found)

    def record(self, seq: int, rank: int = 0) -> Record:
        if (rank, seq) not in self._presented:
            raise ArgumentError("no such record", where=self.path, found=f"seq {seq}, rank {rank}")
        return self._presented[rank, seq].record

    def holder(self, record: Record) -> Record:
        return record if record.same_as is None else self.record(record.same_as, record.rank)

    def making(self, record: Record) -> Making:
        """How the rows of a record are made from stored ones."""
        return self._presented[record.rank, self.holder(record).seq].making

    def rows(self, record: Record) -> Rows:
        """As :meth:`Dump.rows`; digests of rows that were rearranged or added are taken anew, and
        such rows have no sketch and no statistics."""
        return words.rows(self.stored, self.making(record))

    def forget_rows(self) -> None:
        self.stored.forget_rows()

    def read_words(self, record: Record, start: int = 0, stop: int | None = None) -> np.ndarray:
        return words.read(self.stored, self.making(record), start, stop)

    def read_blocks(self, record: Record, block_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        return words.blocks(self.stored, self.making(record), block_bytes)

    def verify_tensor(self, record: Record) -> None:
        for source in self.making(record).sources:
            self.stored.verify_tensor(source)

    def tokens(self) -> dict[str, TokenTrack]:
        return token_tracks(self)


def renamed(record: Record, **fields: object) -> Record:
    """A copy of a record with other fields."""
    return msgspec.structs.replace(record, **fields)
