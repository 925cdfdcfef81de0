"""Kernel text and the headers that it includes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from verify.gpu.errors import CompileError

KERNELS_DIR = Path(__file__).resolve().parents[2] / "kernels"
_LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One ``.cu`` file with everything of ours that it includes.

    ``files`` maps paths relative to the kernel folder to their text; ``digest`` is the SHA-256 of
    all of them, names included.
    """

    name: str
    text: str
    files: dict[str, str]
    digest: str
    folder: Path


def read_source(name: str, folder: Path = KERNELS_DIR) -> KernelSource:
    """Read ``folder/name`` and follow its quoted includes (which are relative to ``folder``)."""
    files: dict[str, str] = {}
    pending = [name]
    while pending:
        current = pending.pop()
        if current in files:
            continue
        path = folder / current
        if not path.is_file():
            raise CompileError("a kernel source is missing", where=path, hint="reinstall firstdiff")
        files[current] = path.read_text(encoding="utf-8")
        pending += _LOCAL_INCLUDE.findall(files[current])
    return KernelSource(name, files[name], files, _digest(files), folder)


def _digest(files: dict[str, str]) -> str:
    hasher = hashlib.sha256()
    for path in sorted(files):
        body = files[path].encode()
        hasher.update(f"{path}\0{len(body)}\0".encode() + body)
    return hasher.hexdigest()
