"""One committed part: checked against its part.json, read lazily."""

from __future__ import annotations

import msgspec
import numpy as np

from verify.dumps.format import layout
from verify.dumps.format.faults import corrupt, read_file
from verify.dumps.format.files import Place, size_of
from verify.dumps.format.record_columns import decode_records
from verify.dumps.format.records import Records, small
from verify.dumps.format.row_table import RowTable, decode_rows
from verify.dumps.format.schema import Part, Record, Rows
from verify.dumps.format.tensors import TensorPlace, read_header
from verify.formats import word_dtype


class PartReader:
    """A part whose part.json and file checksums hold; contents are parsed when asked for.

    Raises:
        CorruptDumpError: anything is not as part.json says, or part.json is not as the chain says.
    """

    def __init__(self, folder: Place, rank: int, index: int, previous: str) -> None:
        self.folder = folder
        text = read_file(folder / layout.PART)
        self.hash = layout.checksum(text)
        self.info = _decode(folder / layout.PART, text)
        self.nbytes = len(text) + sum(file.bytes for file in self.info.files.values())
        self._seq = self._counts = self._stops = np.zeros(0, np.int64)
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
            size = size_of(path)
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

    def load_records(self) -> Records:
        """Parse the records; what holds between them is checked with those of the other parts."""
        where = self.folder / layout.RECORDS
        try:
            return decode_records(self._read(layout.RECORDS), self.info.rank)
        except ValueError as error:
            raise corrupt("the table of records does not parse", where, error) from None

    @property
    def n_records(self) -> int:
        return len(self._seq)

    def attach(self, records: Records) -> None:
        """Take the records of this part, which were found to be in order, and check them against
        part.json and the tensors."""
        size = self.info.files[layout.TENSORS].bytes
        self._places = read_header(self.folder / layout.TENSORS, size)
        counts = records.by_kind(lambda kind: 0 if kind.kept == "same" else kind.n_rows, np.int64)
        self._seq = records.seq
        self._counts = small(counts)
        # Where all records have as many rows, as in decode steps, nothing need be kept.
        alike = len(counts) > 0 and self._counts.strides == (0,)
        self._stops = counts[:0] if alike else small(np.cumsum(counts, dtype=np.int64))
        self._check_steps(records)
        self._check_tensors(records)

    def _check_steps(self, records: Records) -> None:
        found = (int(records.step[0]), int(records.step[-1])) if len(records) else None
        stated = (self.info.first_step, self.info.last_step)
        if found != stated:
            raise corrupt(
                "part.json states other steps than the records have",
                self.folder / layout.PART,
                stated,
                found or "no record",
            )

    def _check_tensors(self, records: Records) -> None:
        """Every full record has its tensor, of its size, and no tensor is without a record."""
        where = self.folder / layout.TENSORS
        numbers = records.where(lambda kind: kind.kept == "full")
        full = {str(r.seq): r for r in map(records.__getitem__, numbers.tolist())}
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
        lines = int(self._counts.sum(dtype=np.int64))
        if len(table) != lines or not np.array_equal(table.record, self._record_lines()):
            raise corrupt(
                "rows and records do not belong together",
                where,
                f"{len(table)} rows",
                f"{lines} rows",
            )
        return table

    def _record_lines(self) -> np.ndarray:
        """What the column ``record`` of rows.parquet must hold."""
        return np.repeat(np.asarray(self._seq, np.int64), self._counts)

    def lines(self, records: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Lines of rows.parquet of the rows ``rows`` of records by their place in the part."""
        return np.asarray(self._stop(records) - self._counts[records] + rows)

    def _stop(self, records: np.ndarray) -> np.ndarray:
        """The line behind the last one of each record."""
        if len(self._stops):
            return np.asarray(self._stops[records], np.int64)
        return np.asarray((np.asarray(records, np.int64) + 1) * self._counts[0])

    def rows(self, table: RowTable, record: Record) -> Rows:
        """Rows of one record out of the table that ``load_rows`` gave."""
        place = np.searchsorted(self._seq, self._seq.dtype.type(record.seq))
        stop = int(self._stop(np.asarray(place)))
        return table.cut(stop - record.n_rows, stop)


def _decode(path: Place, text: bytes) -> Part:
    try:
        part = msgspec.json.decode(text, type=Part)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise corrupt("part.json does not parse", path, error) from None
    if not layout.is_sealed(text, part.checksum):
        raise corrupt("part.json was changed after it was written", path, part.checksum)
    return part
