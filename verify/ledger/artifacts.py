"""Files that entries rest on, stored once by content: ``artifacts/<2 hex>/<sha256>``."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from verify.env.secrets import redact
from verify.errors import DumpError
from verify.ledger.entry import Artifact

SEARCHED = 64 << 20
"""Bytes up to which a text is searched for secrets."""


def path_of(folder: Path, sha256: str) -> Path:
    """Where the artifact with this hash lies under the ledger's folder."""
    return folder / "artifacts" / sha256[:2] / sha256


def sha256_of(path: Path) -> str:
    """SHA-256 hex of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put(folder: Path, source: Path) -> Artifact:
    """Copy a file into the store; a file that is there already is not written again. Text that
    looks like a secret is replaced in the copy, and the entry says so.

    Raises:
        DumpError: ``source`` is not a readable file.
    """
    if not source.is_file():
        raise DumpError("an artifact has to be a file", where=source, found="no file there")
    shown = _redacted(source)
    if shown is None:
        return _put(folder, source, source.name)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "redacted")
        copy.write_bytes(shown)
        stored = _put(folder, copy, source.name)
    return msgspec.structs.replace(stored, redacted=True)


def _put(folder: Path, source: Path, name: str) -> Artifact:
    target = path_of(folder, sha256_of(source))
    artifact = Artifact(name=name, sha256=target.name, bytes=source.stat().st_size)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_whole(source, target)
        if sha256_of(target) != artifact.sha256:
            target.unlink()
            raise DumpError("an artifact changed while it was stored", where=source)
    return artifact


def _redacted(source: Path) -> bytes | None:
    """The content without what looks like a secret; None where nothing does, and for files that
    are no text or larger than :data:`SEARCHED`."""
    if source.stat().st_size > SEARCHED:
        return None
    try:
        text = source.read_bytes().decode()
    except UnicodeDecodeError:
        return None
    shown = redact(text)
    return None if shown == text else shown.encode()


def _copy_whole(source: Path, target: Path) -> None:
    """Copy beside the target and rename, so that a kill never leaves half a file in place."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".tmp-")
    with os.fdopen(handle, "wb") as out, source.open("rb") as data:
        shutil.copyfileobj(data, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    os.replace(name, target)
