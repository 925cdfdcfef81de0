"""The one way to the files of a dump: of a disk by ``pread``, behind a URL by ranges."""

from __future__ import annotations

import os
from pathlib import Path

from verify.dumps.format.remote import RemotePath, is_url

Place = Path | RemotePath
"""A file or folder of a dump."""


def place_of(where: str | Path) -> Place:
    """A path, or what lies behind a URL.

    Raises:
        ArgumentError: no file system for the URL is installed.
        DumpError: the server cannot be reached.
    """
    if isinstance(where, Path) or not is_url(where):
        return Path(where)
    return RemotePath.of(where)


def size_of(path: Place) -> int:
    """Bytes of a file.

    Raises:
        OSError: there is none.
    """
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size


def read_range(path: Place, start: int, stop: int) -> bytes:
    """Bytes ``start:stop`` of a file; fewer where it is shorter."""
    if isinstance(path, RemotePath):
        return path.read_range(start, stop)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, stop - start, start)
    finally:
        os.close(descriptor)


def read_into(path: Place, view: memoryview, offset: int) -> int:
    """Fill ``view`` from ``offset`` on; how many bytes there were."""
    if isinstance(path, RemotePath):
        data = path.read_range(offset, offset + len(view))
        view[: len(data)] = data
        return len(data)
    read = 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while read < len(view):
            count = os.preadv(descriptor, [view[read:]], offset + read)
            if count == 0:
                break
            read += count
    finally:
        os.close(descriptor)
    return read
