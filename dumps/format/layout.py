"""Names of files and folders in a dump, checksums, and writes that survive a crash."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

MANIFEST: Final = "manifest.json"
PART: Final = "part.json"
RECORDS: Final = "records.parquet"
ROWS: Final = "rows.parquet"
TENSORS: Final = "tensors.safetensors"
RANK_END: Final = "end.json"
"""Left by ranks above 0 on closing; rank 0 copies it into the manifest."""
MAX_RANKS: Final = 100_000
"""Above any machine, below what would keep a reader busy."""
MAX_SIZE: Final = 1 << 48
"""Above any count in a run, and low enough that products of sizes and item sizes stay in 64 bits."""
CHECKED_FILES: Final = (RECORDS, ROWS, TENSORS)
TMP: Final = ".tmp"

NO_CHECKSUM: Final = "0" * 32
_CHUNK: Final = 1 << 20  # read size of file checksums: large enough for disk speed, small in memory
_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,5})")
_PART = re.compile(r"part-([0-9]{5,9})")


def rank_name(rank: int) -> str:
    return f"rank-{rank}"


def part_name(index: int) -> str:
    return f"part-{index:05d}"


def rank_of(name: str) -> int | None:
    """Rank number of a folder name, None when it is not one."""
    match = _RANK.fullmatch(name)
    return int(match[1]) if match else None


def part_of(name: str) -> int | None:
    """Part number of a folder name, None when it is not one that ``part_name`` gives."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match and part_name(int(match[1])) == name else None


def checksum(data: bytes | memoryview) -> str:
    """xxh3-128 of ``data`` with seed 0, 32 lower-case hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


def word_bytes(words: np.ndarray) -> memoryview:
    """The bytes of a contiguous array of words, without a copy."""
    return words.reshape(-1).view(np.uint8).data


def file_checksum(path: Path) -> str:
    """xxh3-128 of a file, read in small blocks."""
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            state.update(block)
    return state.hexdigest()


def chain_start(run_id: str, rank: int) -> str:
    """What stands as the hash "before" the first part: it ties a chain to its run and rank."""
    return checksum(f"{run_id}/{rank_name(rank)}".encode())


def seal(text: bytes) -> bytes:
    """Fill in the first ``"checksum":"000..."`` of a JSON text with the checksum of the text."""
    blank = NO_CHECKSUM.encode()
    return text.replace(b'"checksum":"%b"' % blank, b'"checksum":"%b"' % checksum(text).encode(), 1)


def is_sealed(text: bytes, stated: str) -> bool:
    """Whether ``stated`` stands in ``text`` once and is the checksum of the rest."""
    digits = stated.encode()
    if not re.fullmatch(rb"[0-9a-f]{32}", digits) or text.count(digits) != 1:
        return False
    return checksum(text.replace(digits, NO_CHECKSUM.encode())) == stated


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and force it to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash it holds either the old or the new content."""
    temporary = path.with_name(path.name + TMP)
    write_synced(temporary, data)
    os.replace(temporary, path)
    sync(path.parent)
