"""Files that entries rest on, stored once by content: ``artifacts/<2 hex>/<sha256>``."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from verify.errors import DumpError
from verify.ledger.entry import Artifact


def path_of(folder: Path, sha256: str) -> Path:
    """Where the artifact with this hash lies under the ledger's folder."""
    return folder / "artifacts" / sha256[:2] / sha256


def sha256_of(path: Path) -> str:
    """SHA-256 hex of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put(folder: Path, source: Path) -> Artifact:
    """Copy a file into the store; a file that is there already is not written again.

    Raises:
        DumpError: ``source`` is not a readable file.
    """
    if not source.is_file():
        raise DumpError("an artifact has to be a file", where=source, found="no file there")
    target = path_of(folder, sha256_of(source))
    artifact = Artifact(name=source.name, sha256=target.name, bytes=source.stat().st_size)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_whole(source, target)
        if sha256_of(target) != artifact.sha256:
            target.unlink()
            raise DumpError("an artifact changed while it was stored", where=source)
    return artifact


def _copy_whole(source: Path, target: Path) -> None:
    """Copy beside the target and rename, so that a kill never leaves half a file in place."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".tmp-")
    with os.fdopen(handle, "wb") as out, source.open("rb") as data:
        shutil.copyfileobj(data, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    os.replace(name, target)
