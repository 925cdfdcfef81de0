"""The state of git repositories: which commit, and whether the files are really those of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "VERIFY_REPOSITORIES"
"""Folders, separated as in PATH, whose state every run shall record."""
_UNTRACKED_BYTES = 64 << 20
"""Contents of untracked files are hashed up to this many bytes, names and sizes always."""
_SECONDS = 20

# A repository's own configuration may name programs; none of them is run for a look at its state.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def repository_states(folders: Iterable[Path]) -> dict[str, dict[str, object]]:
    """Name -> commit, ``dirty``, and a digest of the changes. Folders outside git are left out;
    two repositories of one name get their paths for names."""
    found: dict[Path, dict[str, object]] = {}
    for folder in folders:
        top = _git(folder, "rev-parse", "--show-toplevel")
        if top and (path := Path(os.fsdecode(top).rstrip("\n"))) not in found:
            found[path] = _state(path)
    names = [path.name for path in found]
    return {
        path.name if names.count(path.name) == 1 else str(path): state
        for path, state in found.items()
    }


def named_folders() -> list[Path]:
    """The working folder and those that ``VERIFY_REPOSITORIES`` names."""
    named = os.environ.get(VARIABLE, "")
    return [Path.cwd(), *(Path(each) for each in named.split(os.pathsep) if each)]


def head_commit(folder: Path) -> str | None:
    """Full hash of the commit that is checked out; None outside git or before the first commit."""
    return resolve(folder, "HEAD")


def resolve(folder: Path, revision: str) -> str | None:
    """Full hash of a commit by name; None if git knows none."""
    found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options",
                 f"{revision}^{{commit}}")  # fmt: skip
    return os.fsdecode(found).strip() if found else None


def changed_files(folder: Path) -> bool:
    """Whether a tracked file differs from the commit."""
    return bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))


def _state(top: Path) -> dict[str, object]:
    commit = head_commit(top)
    status = _git(top, "status", "--porcelain", "-z")
    state: dict[str, object] = {"path": str(top), "commit": commit, "dirty": bool(status)}
    if status:
        state["changes"] = _digest_of_changes(top)
    return state


def _digest_of_changes(top: Path) -> str:
    """Two trees on one commit with the same digest hold the same tracked files, and the same
    untracked ones up to the limit."""
    digest = hashlib.sha256(
        _git(top, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv") or b""
    )
    left = _UNTRACKED_BYTES
    untracked = _git(top, "ls-files", "--others", "--exclude-standard", "-z") or b""
    for name in sorted(filter(None, untracked.split(b"\0"))):
        path = top / os.fsdecode(name)
        try:
            size = path.lstat().st_size
            digest.update(b"%b\0%d\0" % (name, size))
            if path.is_file() and not path.is_symlink() and size <= left:
                left -= size
                digest.update(path.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()


def _git(folder: Path, *words: str) -> bytes | None:
    """Output of one git command that changes nothing; None if it fails."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            [*_GIT, "-C", str(folder), *words],
            check=False, capture_output=True, timeout=_SECONDS, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
