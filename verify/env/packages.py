"""Installed Python packages: their versions, and for those from files what the files hold."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from verify.env.file_hashes import FileHashes

FILES = 20_000
"""Files of one package that are hashed; the entry says when there are more."""
_SOURCE = {".py", ".pyi", ".so", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".toml", ".cfg"}
_SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


def packages() -> dict[str, str]:
    """Distribution -> version, for all that this process could import, as the names of their
    metadata folders say it (the wheel specification: ``name-version.dist-info``)."""
    return {name: version for name, version, _ in _distributions()}


def installed_from_files(hashes: FileHashes) -> dict[str, dict[str, Any]]:
    """Distribution -> where it was installed from and a digest of its files, for packages that came
    from a folder, an archive or a version control system and not from an index (PEP 610).

    The digest is over names and contents as they are now, not as the installer left them.
    """
    found = {}
    for name, _, folder in _distributions():
        try:
            origin = json.loads((folder / "direct_url.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(origin, dict):
            found[name] = _origin(origin, folder, hashes)
    return found


def editable_folders() -> list[Path]:
    """Source folders of packages that are installed as links to them, apart from the recorder."""
    return [
        path
        for name, _, folder in _distributions()
        if name != "firstdiff"
        and (path := _editable_folder(folder / "direct_url.json")) is not None
    ]


def _distributions() -> Iterator[tuple[str, str, Path]]:
    """Name, version and metadata folder; the first on the path counts, as in an import."""
    seen: set[str] = set()
    for entry in dict.fromkeys(sys.path):
        try:
            names = sorted(os.listdir(entry or "."))
        except OSError:
            continue
        for folder in names:
            if match := re.fullmatch(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info", folder):
                name = re.sub(r"[-_.]+", "-", match[1]).lower()
                if name not in seen:
                    seen.add(name)
                    yield name, match[2], Path(entry or ".", folder)


def _origin(origin: dict[str, Any], folder: Path, hashes: FileHashes) -> dict[str, Any]:
    known: dict[str, Any] = {"url": str(origin.get("url", ""))}
    editable = _editable_folder(folder / "direct_url.json")
    known["editable"] = editable is not None
    for key in ("vcs_info", "archive_info"):
        if isinstance(origin.get(key), dict):
            known[key] = origin[key]
    names = _tree(editable) if editable else _recorded(folder)
    known["files"] = _digest(editable or folder.parent, names, hashes)
    return known


def _editable_folder(place: Path) -> Path | None:
    try:
        origin = json.loads(place.read_bytes())
        if not origin["dir_info"]["editable"]:
            return None
        return Path(unquote(urlsplit(origin["url"]).path))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _recorded(folder: Path) -> Iterator[str]:
    """Files that belong to the package: those of RECORD, without metadata, byte code and scripts,
    which name the environment that they lie in."""
    try:
        with (folder / "RECORD").open(newline="") as file:
            for row in csv.reader(file):
                name = row[0] if row else ""
                inside = name and not name.startswith(("..", "/", folder.name))
                if inside and not name.endswith(".pyc"):
                    yield name
    except OSError:
        return


def _tree(top: Path) -> Iterator[str]:
    """Source files below a folder, without hidden folders, environments and build outputs."""
    for here, folders, files in os.walk(top):
        folders[:] = sorted(
            each for each in folders
            if not each.startswith(".") and each not in _SKIPPED
            and not os.path.exists(os.path.join(here, each, "pyvenv.cfg"))
        )  # fmt: skip
        for name in files:
            if os.path.splitext(name)[1] in _SOURCE:
                yield os.path.relpath(os.path.join(here, name), top)


def _digest(base: Path, names: Iterator[str], hashes: FileHashes) -> str:
    digest = hashlib.sha256()
    count = 0
    for count, name in enumerate(sorted(names), 1):
        if count > FILES:
            return f"{digest.hexdigest()} of the first {FILES} files"
        try:
            content = hashes.sha256(base / name)
        except OSError:
            content = "missing"
        digest.update(f"{name}\0{content}\0".encode(errors="surrogateescape"))
    return digest.hexdigest() if count else "no files"
