"""Reading an open dump: verified, in blocks, nothing loaded whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from verify.dumps.format import layout
from verify.dumps.format.faults import corrupt
from verify.dumps.format.intake import record_name
from verify.dumps.format.invariants import RecordChain
from verify.dumps.format.part import PartReader
from verify.dumps.format.row_table import RowTable
from verify.dumps.format.schema import Manifest, Record, Rows
from verify.dumps.format.tensors import read_rows
from verify.dumps.format.tokens import TokenTrack, token_tracks
from verify.errors import ArgumentError

CHECK_BLOCK: Final = 4 << 20
"""Bytes read at a time when a tensor is only verified."""
CACHED_ROW_BYTES: Final = 64 << 20
"""Parsed rows.parquet tables kept in memory, in bytes; the parts used last stay."""


class Dump:
    """A run on disk. Every read of words is verified against the checksum of its tensor."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        parts: dict[int, list[PartReader]],
        problems: list[str],
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.problems = problems
        """Notes for people: why the dump is partial, folders that were left over."""
        self._parts = parts
        self._tables: OrderedDict[PartReader, RowTable] = OrderedDict()
        self._verified: set[tuple[int, int]] = set()

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return self.manifest.status == "complete"

    @property
    def ranks(self) -> list[int]:
        return sorted(self._parts)

    @property
    def total_bytes(self) -> int:
        """Bytes of all committed parts and of the manifest."""
        parts = sum(part.nbytes for rank in self._parts.values() for part in rank)
        return parts + (self.path / layout.MANIFEST).stat().st_size

    @property
    def part_count(self) -> int:
        return sum(len(parts) for parts in self._parts.values())

    @cached_property
    def _index(self) -> dict[tuple[int, int], tuple[Record, PartReader]]:
        """(rank, seq) -> record and its part; parses every records.parquet."""
        found: dict[tuple[int, int], tuple[Record, PartReader]] = {}
        for rank, parts in self._parts.items():
            chain = RecordChain()
            for part in parts:
                found.update(((rank, r.seq), (r, part)) for r in part.load_records(chain))
        return found

    def records(self, rank: int | None = None) -> list[Record]:
        """Records in execution order: of one rank by ``seq``, of all by (step, epoch, seq, rank).

        Raises:
            CorruptDumpError: records contradict each other, their rows or their tensors.
        """
        found = [record for record, _ in self._index.values()]
        if rank is None:
            return sorted(found, key=lambda r: (r.step, r.epoch, r.seq, r.rank))
        return [record for record in found if record.rank == rank]

    def record(self, seq: int, rank: int = 0) -> Record:
        """The record with this ``seq``.

        Raises:
            ArgumentError: there is none.
        """
        if (rank, seq) not in self._index:
            raise ArgumentError("no such record", where=self.path, found=f"seq {seq}, rank {rank}")
        return self._index[rank, seq][0]

    def holder(self, record: Record) -> Record:
        """The record that holds the rows of ``record``: itself unless it is kept as ``same``."""
        return record if record.same_as is None else self.record(record.same_as, record.rank)

    def _holder(self, record: Record) -> tuple[Record, PartReader]:
        return self._index[record.rank, self.holder(record).seq]

    def rows(self, record: Record) -> Rows:
        """Identities, digests and what else is kept of the rows of ``record``.

        Raises:
            CorruptDumpError: the table of rows does not belong to the records.
        """
        holder, part = self._holder(record)
        return part.rows(self._table(part), holder)

    def _table(self, part: PartReader) -> RowTable:
        if part in self._tables:
            self._tables.move_to_end(part)
            return self._tables[part]
        table = self._tables[part] = part.load_rows()
        size = sum(kept.nbytes for kept in self._tables.values())
        while size > CACHED_ROW_BYTES and len(self._tables) > 1:
            size -= self._tables.popitem(last=False)[1].nbytes
        return table

    def forget_rows(self) -> None:
        """Drop the parsed tables of rows; they are read again when asked for."""
        self._tables.clear()

    def read_words(self, record: Record, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows ``start:stop`` of the row matrix: raw words [rows, row_length], unsigned.

        The whole tensor is verified the first time that any of it is read.

        Raises:
            ArgumentError: the record keeps no words, or has no such rows.
            CorruptDumpError: the words are not those that were stored.
        """
        holder, part = self._full(record)
        stop = holder.n_rows if stop is None else stop
        if not 0 <= start <= stop <= holder.n_rows:
            raise ArgumentError(
                "no such rows",
                where=record_name(record),
                found=f"{start}:{stop}",
                allowed=f"0..{holder.n_rows}",
            )
        self.verify_tensor(record)
        return _read(part, holder, start, stop)

    def read_blocks(self, record: Record, block_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in blocks of about ``block_bytes``: (first row, words [rows, row_length]).

        The checksum is compared after the last block, so nothing may be reported from the blocks
        of a pass that does not come to its end.

        Raises:
            ArgumentError: the record keeps no words.
            CorruptDumpError: at the end, if the words are not those that were stored.
        """
        holder, part = self._full(record)
        place = part.place(holder)
        step = max(1, block_bytes // max(1, place.row_bytes))
        state = xxhash.xxh3_128()
        for start in range(0, holder.n_rows, step):
            words = _read(part, holder, start, min(start + step, holder.n_rows))
            state.update(layout.word_bytes(words))
            yield start, words
        if state.hexdigest() != part.tensor_checksum(holder):
            raise corrupt(
                f"a tensor has other words than when it was written: {record_name(holder)}",
                part.folder / layout.TENSORS,
                f"xxh3-128 {state.hexdigest()}",
                part.tensor_checksum(holder),
            )
        self._verified.add((holder.rank, holder.seq))

    def verify_tensor(self, record: Record) -> None:
        """Read a tensor once against its checksum; a tensor that was verified is not read again.

        Raises:
            ArgumentError: the record keeps no words.
            CorruptDumpError: the words are not those that were stored.
        """
        holder, _ = self._full(record)
        if (holder.rank, holder.seq) not in self._verified:
            for _ in self.read_blocks(holder, CHECK_BLOCK):
                pass

    def _full(self, record: Record) -> tuple[Record, PartReader]:
        holder, part = self._holder(record)
        if holder.kept != "full":
            raise ArgumentError(
                "the words of this record were not kept",
                where=record_name(record),
                found=f"kept as {holder.kept!r}",
                allowed="full",
                hint="capture this tap in full",
            )
        return holder, part

    def tokens(self) -> dict[str, TokenTrack]:
        """Sequence -> its prompt and generated token ids, also of an open dump."""
        return token_tracks(self)


def _read(part: PartReader, holder: Record, start: int, stop: int) -> np.ndarray:
    path = part.folder / layout.TENSORS
    try:
        return read_rows(path, part.place(holder), start, stop)
    except OSError as error:
        raise corrupt("a file of the dump cannot be read", path, error.strerror) from None
