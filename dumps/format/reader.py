"""Reading an open dump: verified, in blocks, nothing loaded whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from verify.dumps.format import layout
from verify.dumps.format.faults import corrupt, read_file
from verify.dumps.format.files import Place, size_of
from verify.dumps.format.input_lists import NOBODY
from verify.dumps.format.intake import record_name
from verify.dumps.format.invariants import first_fault
from verify.dumps.format.part import PartReader
from verify.dumps.format.records import Records, joined
from verify.dumps.format.row_table import RowTable
from verify.dumps.format.schema import Manifest, Record, Rows
from verify.dumps.format.tensors import cut_rows, read_rows
from verify.dumps.format.tokens import TokenTrack, token_tracks
from verify.dumps.summaries import BUCKETS
from verify.errors import ArgumentError, DumpError

CHECK_BLOCK: Final = 4 << 20
"""Bytes read at a time when a tensor is only verified."""
SMALL_FILE: Final = 1 << 16
"""Tensor files up to this many bytes are read whole."""
SMALL_FILES: Final = 256
"""How many of them are kept in memory."""
CACHED_ROW_BYTES: Final = 16 << 20
"""Parsed rows.parquet tables kept in memory, in bytes; the parts used last stay."""


class Dump:
    """A run on disk. Every read of words is verified against the checksum of its tensor."""

    def __init__(
        self,
        path: Place,
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
        self._small: OrderedDict[str, bytes] = OrderedDict()
        self._verified: set[tuple[int, int]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes open the dump again, by its path or URL."""
        return reopen, (str(self.path), self._identity)

    @property
    def _identity(self) -> str:
        """Differs between dumps, and between states of one that is being written."""
        ends = [part.hash for _, rank in sorted(self._parts.items()) for part in rank[-1:]]
        return layout.checksum(" ".join([self.manifest.checksum, *ends]).encode())

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
        return parts + size_of(self.path / layout.MANIFEST)

    @property
    def part_count(self) -> int:
        return sum(len(parts) for parts in self._parts.values())

    @cached_property
    def _stored(self) -> Records:
        """All records, rank by rank; parses every records.parquet."""
        return joined([_load_rank(parts) for _, parts in sorted(self._parts.items())])

    @cached_property
    def _part_starts(self) -> tuple[NDArray[np.int64], list[PartReader]]:
        """The parts rank by rank, and the number of the first stored record of each."""
        parts = [part for _, rank in sorted(self._parts.items()) for part in rank]
        _ = self._stored  # parts know their records once they are parsed
        counts = [part.n_records for part in parts]
        return np.cumsum([0, *counts])[:-1], parts

    @cached_property
    def _in_order(self) -> Records:
        stored = self._stored
        order = np.lexsort((stored.rank, stored.seq, stored.epoch, stored.step))
        return stored if (order[1:] > order[:-1]).all() else stored.take(order)

    def table(self) -> Records:
        """All records in execution order, by (step, epoch, seq, rank), as columns.

        Raises:
            CorruptDumpError: records contradict each other, their rows or their tensors.
        """
        return self._in_order

    def records(self, rank: int | None = None) -> list[Record]:
        """Records in execution order: of one rank by ``seq``, of all as :meth:`table`.

        Raises:
            CorruptDumpError: as :meth:`table`.
        """
        if rank is None:
            return list(self._in_order)
        return list(self._stored.take(np.flatnonzero(self._stored.rank == rank)))

    def record(self, seq: int, rank: int = 0) -> Record:
        """The record with this ``seq``.

        Raises:
            ArgumentError: there is none.
        """
        return self._stored[self._number(seq, rank)]

    def _number(self, seq: int, rank: int) -> int:
        found = self._stored.number(rank, seq)
        if found == NOBODY:
            raise ArgumentError("no such record", where=self.path, found=f"seq {seq}, rank {rank}")
        return found

    def holder(self, record: Record) -> Record:
        """The record that holds the rows of ``record``: itself unless it is kept as ``same``."""
        return record if record.same_as is None else self.record(record.same_as, record.rank)

    def _holder(self, record: Record) -> tuple[Record, PartReader]:
        holder = self.holder(record)
        starts, parts = self._part_starts
        number = self._number(holder.seq, holder.rank)
        return holder, parts[int(np.searchsorted(starts, number, side="right")) - 1]

    def row_tables(self) -> Iterator[tuple[NDArray[np.int64], RowTable]]:
        """All rows that are stored, a part at a time: places in :meth:`table` of the records that
        hold them, in the order of the rows, and the rows.

        Raises:
            CorruptDumpError: the table of rows does not belong to the records.
        """
        stored, (starts, parts) = self._stored, self._part_starts
        places = np.arange(len(stored))
        if self._in_order is not stored:
            places = self._in_order.numbers(stored.rank, stored.seq)
        holds = stored.same_as == NOBODY
        for start, part in zip(starts.tolist(), parts, strict=True):
            own = slice(start, start + part.n_records)
            yield places[own][holds[own]], part.load_rows()

    def sketches(self, numbers: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Sketches [rows, 16] of the rows ``rows`` of the records at the places ``numbers`` of
        :meth:`table`, of which each keeps them.

        Raises:
            CorruptDumpError: a table of rows does not belong to the records.
        """
        table, (starts, parts) = self.table(), self._part_starts
        held = np.where(table.same_as == NOBODY, table.seq, table.same_as)[numbers]
        stored = self._stored.numbers(table.rank[numbers], held)
        of_part = np.searchsorted(starts, stored, side="right") - 1
        found = np.empty((len(rows), BUCKETS), np.float32)
        for number in np.unique(of_part).tolist():
            some = np.flatnonzero(of_part == number)
            part = parts[number]
            sketch = self._table(part).sketch
            assert sketch is not None
            found[some] = sketch[part.lines(stored[some] - starts[number], rows[some])]
        return found

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
        return self._read(part, holder, start, stop)

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
            words = self._read(part, holder, start, min(start + step, holder.n_rows))
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

    def _read(self, part: PartReader, holder: Record, start: int, stop: int) -> np.ndarray:
        path, place = part.folder / layout.TENSORS, part.place(holder)
        try:
            if part.info.files[layout.TENSORS].bytes <= SMALL_FILE:
                return cut_rows(self._whole(path), path, place, start, stop)
            return read_rows(path, place, start, stop)
        except OSError as error:
            raise corrupt("a file of the dump cannot be read", path, error.strerror) from None

    def _whole(self, path: Place) -> bytes:
        """A small file, read once: token ids of many steps lie in one."""
        key = str(path)
        if key not in self._small:
            self._small[key] = read_file(path)
            while len(self._small) > SMALL_FILES:
                self._small.popitem(last=False)
        self._small.move_to_end(key)
        return self._small[key]

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


def _load_rank(parts: list[PartReader]) -> Records:
    """The records of one rank, checked against each other and against their parts."""
    pieces = [part.load_records() for part in parts]
    records = joined(pieces)
    ends = np.cumsum([len(piece) for piece in pieces])
    if found := first_fault(records):
        number, fault = found
        part = parts[int(np.searchsorted(ends, number, side="right"))]
        where = part.folder / layout.RECORDS
        tap = records[number].tap
        raise corrupt(f"{fault.what} ({tap})", where, fault.found, fault.allowed)
    for part, end, piece in zip(parts, ends.tolist(), pieces, strict=True):
        part.attach(records.take(slice(end - len(piece), end)))
    return records


@lru_cache(maxsize=4)
def reopen(path: str, identity: str) -> Dump:
    """The dump at ``path``, opened once a process.

    Raises:
        DumpError: another dump stands there.
    """
    from verify.dumps.format.opening import open_dump

    dump = open_dump(path)
    if dump._identity != identity:
        raise DumpError(
            "another dump stands under this name",
            where=path,
            found=dump.manifest.run_id,
            hint="workers must reach the same files, and nobody may write them meanwhile",
        )
    return dump
