"""SHA-256 of files, remembered: the libraries of a process are hundreds of megabytes, and the same
ones every time."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

from verify.env.user_cache import cache_folder

ENTRIES = 20_000
"""About 3 MB on disk; the oldest go first."""
SETTLED_NS = 2_000_000_000
"""A file younger than this may change again without a new time stamp, so it is not remembered (the
same rule by which git treats its index; 2 s is the coarsest clock of a common file system)."""


class FileHashes:
    """Hashes by (device, inode, size, mtime, ctime). The ctime is set by the kernel alone, so
    restoring an mtime does not hide a changed file."""

    clock = staticmethod(time.time_ns)

    def __init__(self, place: Path | None = None) -> None:
        self.place = place or cache_folder() / "file-hashes.json"
        self.hashed_bytes = 0
        """Bytes that were really read."""
        self._known = _load(self.place)
        self._new = False

    def sha256(self, path: str | Path) -> str:
        """Hex digest of the file's bytes.

        Raises:
            OSError: it cannot be read.
        """
        with open(path, "rb") as file:
            key = _key(os.fstat(file.fileno()))
            if found := self._known.get(key):
                return found
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
        self.hashed_bytes += after.st_size
        if _key(after) == key and self.clock() - after.st_ctime_ns > SETTLED_NS:
            self._known[key] = digest
            self._new = True
        return digest

    def save(self) -> None:
        """Write what is new. A cache that cannot be written costs time later and nothing else."""
        if not self._new:
            return
        # Another process may have added meanwhile; losing a race loses an entry, never a result.
        merged = {**_load(self.place), **self._known}
        kept = dict(list(merged.items())[-ENTRIES:])
        try:
            self.place.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.place.parent, prefix=self.place.name)
            with os.fdopen(handle, "w") as file:
                json.dump(kept, file)
            os.replace(name, self.place)
        except OSError:
            return
        self._new = False


def _key(status: os.stat_result) -> str:
    fields = (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip
    return ":".join(map(str, fields))


def _load(place: Path) -> dict[str, str]:
    try:
        found = json.loads(place.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str) and len(v) == 64}
