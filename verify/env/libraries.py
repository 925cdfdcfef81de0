"""Shared objects that this process has loaded: from its memory map, not from what is installed."""

from __future__ import annotations

import re
from pathlib import Path

from verify.env.file_hashes import FileHashes

MAPS = Path("/proc/self/maps")
_SHARED = re.compile(r"\.so(\.[0-9.]+)?$")
_GONE = " (deleted)"


def loaded_libraries(hashes: FileHashes) -> dict[str, str]:
    """Path -> SHA-256 of every shared object in the process map, in the order of the paths.

    An object that was replaced or removed after it was loaded is hashed through the map itself
    where the system allows that, else its entry says so: the file that now has its name is another.
    Empty where the system has no process map.
    """
    found: dict[str, str] = {}
    for path, block in sorted(_mapped().items()):
        if path.endswith(_GONE):
            found[path.removesuffix(_GONE)] = _replaced(block, hashes)
        else:
            found[path] = _hash(path, hashes)
    return found


def _mapped() -> dict[str, str]:
    """Path -> address range of its first mapping (proc(5): address, perms, offset, dev, inode,
    pathname, the last of which may hold spaces)."""
    try:
        lines = MAPS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and _SHARED.search(fields[5].removesuffix(_GONE)):
            found.setdefault(fields[5], fields[0])
    return found


def _replaced(block: str, hashes: FileHashes) -> str:
    try:
        return hashes.sha256(f"/proc/self/map_files/{block}")
    except OSError:
        return "replaced or removed after it was loaded"


def _hash(path: str, hashes: FileHashes) -> str:
    try:
        return hashes.sha256(path)
    except OSError as error:
        return f"not readable: {error.strerror}"
