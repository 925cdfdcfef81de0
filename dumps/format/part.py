"""One committed part: checked against its part.json, read lazily."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from verify.dumps.format import layout
from verify.dumps.format.faults import corrupt, read_file
from verify.dumps.format.invariants import RecordChain
from verify.dumps.format.record_table import decode_records
from verify.dumps.format.row_table import RowTable, decode_rows
from verify.dumps.format.schema import Part, Record, Rows
from verify.dumps.format.tensors import TensorPlace, read_header
from verify.formats import word_dtype


class PartReader:
    """A part whose part.json and file checksums hold; contents are parsed when asked for.

    Raises:
        CorruptDumpError: anything is not as part.json says, or part.json is not as the chain says.
    """

    def __init__(self, folder: Path, rank: int, index: int, previous: str) -> None:
        self.folder = folder
        text = read_file(folder / layout.PART)
        self.hash = layout.checksum(text)
        self.info = _decode(folder / layout.PART, text)
        self.nbytes = len(text) + sum(file.bytes for file in self.info.files.values())
        self.records: list[Record] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._places: dict[str, TensorPlace] = {}
        self._check_place(rank, index, previous)
        for name in layout.CHECKED_FILES:
            self._check_size(name)
        for name in (layout.RECORDS, layout.ROWS):
            self._read(name)

    def _check_place(self, rank: int, index: int, previous: str) -> None:
        where = self.folder / layout.PART
        if (self.info.rank, self.info.index) != (rank, index):
            found = f"rank {self.info.rank}, part {self.info.index}"
            raise corrupt("a part stands in another's place", where, found)
        if self.info.previous != previous:
            raise corrupt(
                "the chain of parts is broken: the part belongs to another run, or the part before "
                "it was exchanged",
                where,
                self.info.previous,
                previous,
            )
        if set(self.info.files) != set(layout.CHECKED_FILES):
            raise corrupt(
                "part.json does not list the files of a part",
                where,
                ", ".join(sorted(self.info.files)),
                ", ".join(layout.CHECKED_FILES),
            )

    def _check_size(self, name: str) -> None:
        path, expected = self.folder / name, self.info.files[name].bytes
        try:
            size = path.stat().st_size
        except OSError as error:
            raise corrupt("a file of the dump is missing", path, error.strerror) from None
        if size != expected:
            raise corrupt(
                "a file has another size than when it was written", path, f"{size} bytes", expected
            )

    def _read(self, name: str) -> bytes:
        """Bytes of a whole file, verified."""
        data = read_file(self.folder / name)
        found, stated = layout.checksum(data), self.info.files[name].xxh3_128
        if found != stated:
            raise corrupt(
                "a file has other bytes than when it was written",
                self.folder / name,
                f"xxh3-128 {found}",
                stated,
            )
        return data

    def load_records(self, chain: RecordChain) -> list[Record]:
        """Parse the records, checked against the records before them and against the tensors."""
        where = self.folder / layout.RECORDS
        try:
            self.records = decode_records(self._read(layout.RECORDS))
        except ValueError as error:
            raise corrupt("the table of records does not parse", where, error) from None
        size = self.info.files[layout.TENSORS].bytes
        self._places = read_header(self.folder / layout.TENSORS, size)
        line = 0
        for record in self.records:
            record.rank = self.info.rank
            if fault := chain.append(record):
                raise corrupt(f"{fault.what} ({record.tap})", where, fault.found, fault.allowed)
            count = 0 if record.kept == "same" else record.n_rows
            self._spans[record.seq] = (line, line + count)
            line += count
        self._check_steps()
        self._check_tensors()
        return self.records

    def _check_steps(self) -> None:
        steps = [record.step for record in self.records]
        stated = (self.info.first_step, self.info.last_step)
        if not steps or (steps[0], steps[-1]) != stated:
            raise corrupt(
                "part.json states other steps than the records have",
                self.folder / layout.PART,
                stated,
                (steps[0], steps[-1]) if steps else "no record",
            )

    def _check_tensors(self) -> None:
        """Every full record has its tensor, of its size, and no tensor is without a record."""
        where = self.folder / layout.TENSORS
        full = {str(r.seq): r for r in self.records if r.kept == "full"}
        for source, names in (("part.json", self.info.tensors), ("the header", self._places)):
            if full.keys() != set(names):
                odd = sorted(full.keys() ^ set(names))[:3]
                raise corrupt(f"records and tensors of {source} differ", where, f"seq {odd}")
        for key, record in full.items():
            place, dtype = self._places[key], word_dtype(record.dtype)
            if (place.rows, place.row_length, place.dtype) != (
                record.n_rows,
                record.row_length,
                dtype,
            ):
                raise corrupt(
                    f"a record points outside its tensor: seq {key} ({record.tap})",
                    where,
                    f"{place.dtype} [{place.rows}, {place.row_length}]",
                    f"{dtype} [{record.n_rows}, {record.row_length}]",
                )

    def place(self, record: Record) -> TensorPlace:
        """Where the words of a full record lie in tensors.safetensors."""
        return self._places[str(record.seq)]

    def tensor_checksum(self, record: Record) -> str:
        return self.info.tensors[str(record.seq)]

    def load_rows(self) -> RowTable:
        """Parse rows.parquet, checked against the records."""
        where = self.folder / layout.ROWS
        try:
            table = decode_rows(self._read(layout.ROWS))
        except ValueError as error:
            raise corrupt("the table of rows does not parse", where, error) from None
        lines = max((stop for _, stop in self._spans.values()), default=0)
        if len(table.record) != lines or not np.array_equal(table.record, self._record_lines()):
            found = f"{len(table.record)} rows"
            raise corrupt("rows and records do not belong together", where, found, f"{lines} rows")
        return table

    def _record_lines(self) -> np.ndarray:
        """What the column ``record`` of rows.parquet must hold."""
        counts = [stop - start for start, stop in self._spans.values()]
        return np.repeat(np.fromiter(self._spans, np.int64, len(self._spans)), counts)

    def rows(self, table: RowTable, record: Record) -> Rows:
        """Rows of one record out of the table that ``load_rows`` gave."""
        return table.cut(*self._spans[record.seq])


def _decode(path: Path, text: bytes) -> Part:
    try:
        part = msgspec.json.decode(text, type=Part)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise corrupt("part.json does not parse", path, error) from None
    if not layout.is_sealed(text, part.checksum):
        raise corrupt("part.json was changed after it was written", path, part.checksum)
    return part
