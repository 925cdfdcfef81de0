"""Shared objects of two processes: other builds under one name, and those that one alone loaded."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePath

from verify.env.weights import LIKELY, POSSIBLE, UNLIKELY, is_kernel_package

_PACKAGE = re.compile(r"/(?:site|dist)-packages/(nvidia/[^/]+|[^/]+)/")
_SYSTEM = re.compile(r"^(ld-linux|libc|libm|libdl|libpthread|librt|libutil|libnss|libresolv)\b")


@dataclass(frozen=True, slots=True)
class LibraryChange:
    """One shared object of which the processes have different builds, or the group of those of one
    package that one process alone has loaded."""

    name: str
    a: str
    b: str
    owner: str
    """Package folder that holds it; empty outside packages."""
    other_build: bool
    """Both processes loaded an object of this name, and their bytes differ."""

    @property
    def subject(self) -> str:
        return self.owner or self.name

    def belongs_to(self, package: str) -> bool:
        """Whether a distribution of this name brings it (``nvidia-cublas`` of a folder stands for
        ``nvidia-cublas-cu12``)."""
        return bool(self.owner) and (
            package == self.owner
            or (self.owner.startswith("nvidia-") and package.startswith(f"{self.owner}-"))
        )

    def weight(self) -> tuple[str, str]:
        """How likely it is to matter, and why."""
        if not self.other_build:
            matters = not self.owner or is_kernel_package(self.owner)
            return (POSSIBLE if matters else UNLIKELY), "loaded in one run alone"
        if _SYSTEM.match(self.name):
            return POSSIBLE, "another build of a system library"
        return LIKELY, "another build was loaded under this name"


def library_changes(a: dict[str, str] | None, b: dict[str, str] | None) -> list[LibraryChange]:
    """Compare by file name and content: the same bytes in another folder are no change. Nothing if
    either side did not record its libraries."""
    if a is None or b is None:
        return []
    x, y = _by_name(a), _by_name(b)
    found: list[LibraryChange] = []
    alone: dict[str, list[set[str]]] = defaultdict(lambda: [set(), set()])
    for name in sorted(x.keys() | y.keys()):
        only_a = x[name].keys() - y[name].keys()
        only_b = y[name].keys() - x[name].keys()
        if only_a and only_b:
            was, now = sorted(only_a), sorted(only_b)
            owner = _owner(x[name][was[0]])
            found.append(LibraryChange(
                name, _builds(was, x[name]), _builds(now, y[name]), owner, other_build=True
            ))  # fmt: skip
        elif only_a or only_b:
            path = next(iter((x if only_a else y)[name].values()))
            alone[_owner(path)][0 if only_a else 1].add(name)
    for owner, (in_a, in_b) in sorted(alone.items()):
        name = f"of {owner}" if owner else "of the system and others"
        found.append(LibraryChange(name, _list(in_a), _list(in_b), owner, other_build=False))
    return found


def _by_name(libraries: dict[str, str]) -> dict[str, dict[str, str]]:
    """File name -> SHA-256 -> a path with that content."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path, sha256 in libraries.items():
        found[PurePath(path).name].setdefault(sha256, path)
    return found


def _owner(path: str) -> str:
    if match := _PACKAGE.search(path):
        return re.sub(r"[-_./]+", "-", match[1].removesuffix(".libs")).lower()
    return "python" if "/lib-dynload/" in path or "/libpython" in path else ""


def _builds(hashes: list[str], paths: dict[str, str]) -> str:
    return ", ".join(f"{sha256[:12]} {paths[sha256]}" for sha256 in hashes)


def _list(names: set[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
    return (", ".join(shown[:4]) + more) or "-"
