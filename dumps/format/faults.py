"""Corruption, told apart from everything else that can be wrong."""

from __future__ import annotations

import stat
from typing import Final

from verify.dumps.format.files import Place
from verify.dumps.format.remote import RemotePath
from verify.errors import CorruptDumpError

_FIX: Final = "restore the file from a copy, or record the run again"


def corrupt(
    what: str, where: object, found: object = None, allowed: object = None
) -> CorruptDumpError:
    """The error for bytes that are not what a writer stored."""
    return CorruptDumpError(what, where=where, found=found, allowed=allowed, hint=_FIX)


def read_file(path: Place) -> bytes:
    """Bytes of a regular file of a dump.

    Raises:
        CorruptDumpError: it is missing or cannot be read.
    """
    try:
        if isinstance(path, RemotePath):
            return path.read_bytes()
        if not stat.S_ISREG(path.stat().st_mode):
            raise corrupt("something else stands where a file of the dump should be", path)
        return path.read_bytes()
    except OSError as error:
        raise corrupt("a file of the dump cannot be read", path, error.strerror) from None
