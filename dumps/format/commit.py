"""Committing one part: files first, forced to the disk, then one rename that makes it count."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from safetensors import SafetensorError

from verify.dumps.format import layout
from verify.dumps.format.block import Block
from verify.dumps.format.record_table import encode_records
from verify.dumps.format.row_table import encode_rows
from verify.dumps.format.schema import Part, PartFile, Record, Rows
from verify.dumps.format.tensors import write_tensors
from verify.errors import StorageError

ROW_BYTES: Final = 160
"""Upper estimate of one line of rows.parquet: digest 8, sketch 64, statistics 56, codes."""
RECORD_BYTES: Final = 2048
"""Upper estimate of one record: its line, its JSON entries in the header and in part.json."""
BLOCK_RECORD_BYTES: Final = 256
"""Upper estimate of the line of a record without words and without references."""
RESERVE_BYTES: Final = 4 << 20
"""Left free on the disk, for folders, inodes and the final manifest."""


@dataclass(slots=True)
class Pending:
    """Records that are not on the disk yet, in order."""

    records: list[Record | Block] = field(default_factory=list)
    rows: list[tuple[int | np.ndarray, Rows]] = field(default_factory=list)
    words: dict[str, np.ndarray] = field(default_factory=dict)
    nbytes: int = 0
    """Upper estimate of the bytes that they will take."""

    def append(self, record: Record, rows: Rows | None, words: np.ndarray | None) -> None:
        self.records.append(record)
        self.nbytes += RECORD_BYTES
        if rows is not None:
            self.rows.append((record.seq, rows))
            self.nbytes += len(rows) * ROW_BYTES
        if words is not None:
            self.words[str(record.seq)] = words
            self.nbytes += words.nbytes

    def append_block(self, block: Block, rows: Rows) -> None:
        count = len(block.template.records)
        self.records.append(block)
        self.rows.append((block.template.row_records(block.seq), rows))
        self.nbytes += count * BLOCK_RECORD_BYTES + len(rows) * ROW_BYTES


class Commit(NamedTuple):
    """A part that is on the disk: its bytes and the hash of its part.json."""

    nbytes: int
    hash: str


def check_space(path: Path, need: int, left: int | None, kept: str) -> None:
    """Raise StorageError unless ``need`` bytes fit the budget and the disk."""
    if left is not None and need > left:
        raise StorageError(
            "the byte budget of the capture is spent",
            where=path,
            found=f"{need} bytes to write",
            allowed=f"{left} bytes left",
            hint=f"{kept}; raise the budget or keep fewer taps in full",
        )
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    if need + RESERVE_BYTES > free:
        raise StorageError(
            "the disk is nearly full",
            where=path,
            found=f"{need} bytes to write",
            allowed=f"{max(free - RESERVE_BYTES, 0)} bytes free",
            hint=f"{kept}; free some space or keep fewer taps in full",
        )


def storage_error(what: str, path: Path, error: Exception, kept: str = "") -> StorageError:
    """The error to show for a failed write."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "free some space and record again" if full else "check the folder and its permissions"
    return StorageError(
        what, where=path, found=error, hint="; ".join(text for text in (kept, advice) if text)
    )


def commit_part(
    folder: Path, rank: int, index: int, previous: str, pending: Pending, kept: str
) -> Commit:
    """Write ``pending`` as part ``index`` into the rank's folder.

    Raises:
        StorageError: a write failed; the unfinished folder is removed if that is possible, and
            ignored by readers otherwise.
    """
    target = folder / layout.part_name(index)
    temporary = folder / (target.name + layout.TMP)
    try:
        temporary.mkdir()
        nbytes, text = _write_files(temporary, rank, index, previous, pending)
        layout.sync(temporary)
        os.rename(temporary, target)
        layout.sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise storage_error("a part could not be written", target, error, kept) from error
    return Commit(nbytes, layout.checksum(text))


def _write_files(
    folder: Path, rank: int, index: int, previous: str, pending: Pending
) -> tuple[int, bytes]:
    """Write the four files; their bytes in all, and the text of part.json."""
    layout.write_synced(folder / layout.RECORDS, encode_records(pending.records))
    layout.write_synced(folder / layout.ROWS, encode_rows(pending.rows))
    write_tensors(folder / layout.TENSORS, pending.words)
    layout.sync(folder / layout.TENSORS)
    files = {name: _part_file(folder / name) for name in layout.CHECKED_FILES}
    part = Part(
        checksum=layout.NO_CHECKSUM,
        rank=rank,
        index=index,
        first_step=pending.records[0].step,
        last_step=pending.records[-1].step,
        files=files,
        tensors={
            key: layout.checksum(layout.word_bytes(words)) for key, words in pending.words.items()
        },
        previous=previous,
    )
    text = layout.seal(msgspec.json.encode(part))
    layout.write_synced(folder / layout.PART, text)
    return sum(file.bytes for file in files.values()) + len(text), text


def _part_file(path: Path) -> PartFile:
    return PartFile(bytes=path.stat().st_size, xxh3_128=layout.file_checksum(path))
