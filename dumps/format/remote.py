"""Dumps behind a URL (s3://, gs://, memory://, ...), through fsspec: one listing, then reads by range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from verify.errors import ArgumentError, DumpError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Tree:
    """A file system, and what lay under the dump when it was opened."""

    system: AbstractFileSystem
    sizes: dict[str, int]
    """Key of a file -> bytes."""
    folders: dict[str, dict[str, None]]
    """Key of a folder -> names in it, in a table for its order and its speed."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder of a dump behind a URL: as much of :class:`pathlib.Path` as readers need.

    Raises:
        DumpError: the server cannot be reached or refuses. That is no corruption.
    """

    tree: _Tree
    key: str

    @classmethod
    def of(cls, url: str) -> RemotePath:
        """List what lies under ``url``.

        Raises:
            ArgumentError: no file system for this protocol is installed.
            DumpError: as above.
        """
        system, key = _open(url)
        try:
            found = _asked(url, lambda: system.find(key, detail=True))
        except FileNotFoundError:  # no such bucket: no dump either
            found = {}
        sizes = {_clean(name): int(entry["size"] or 0) for name, entry in found.items()}
        folders: dict[str, dict[str, None]] = {}
        for name in sizes:
            _enter(name, folders)
        return cls(_Tree(system, sizes, folders), _clean(key))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.tree, f"{self.key}/{name}")

    def __str__(self) -> str:
        return str(self.tree.system.unstrip_protocol(self.key))

    def __lt__(self, other: RemotePath) -> bool:
        return self.key < other.key

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        return self.key in self.tree.sizes

    def is_dir(self) -> bool:
        return self.key in self.tree.folders

    def iterdir(self) -> Iterator[RemotePath]:
        if not self.is_dir():
            raise FileNotFoundError(2, "No such folder", str(self))
        return (self / name for name in self.tree.folders[self.key])

    def size(self) -> int:
        if not self.is_file():
            raise FileNotFoundError(2, "No such file", str(self))
        return self.tree.sizes[self.key]

    def read_bytes(self) -> bytes:
        return bytes(_asked(str(self), lambda: self.tree.system.cat_file(self.key)))

    def read_range(self, start: int, stop: int) -> bytes:
        """Bytes ``start:stop``; fewer where the file is shorter."""
        system = self.tree.system
        return bytes(_asked(str(self), lambda: system.cat_file(self.key, start=start, end=stop)))


def _open(url: str) -> tuple[AbstractFileSystem, str]:
    hint = "pip install 'firstdiff[remote]', and the fsspec package of the protocol"
    try:
        from fsspec.core import url_to_fs

        system, key = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ArgumentError(
            "no file system for this URL is installed", where=url, found=error, hint=hint
        ) from None
    except Exception as error:  # credentials and servers fail in types of their own
        raise _unreachable(url, error) from error
    system.invalidate_cache()
    return system, str(key)


def _asked(where: str, ask: Callable[[], T]) -> T:
    """What the server answers; a file that is not there is told as one of a disk would be."""
    try:
        return ask()
    except FileNotFoundError:
        raise
    except Exception as error:  # every service raises errors of its own library
        raise _unreachable(where, error) from error


def _unreachable(where: str, error: Exception) -> DumpError:
    return DumpError(
        "the dump behind this URL cannot be read",
        where=where,
        found=f"{type(error).__name__}: {error}",
        hint="check the URL, the credentials and the network; a copy on a disk works as well",
    )


def _clean(key: str) -> str:
    return key.rstrip("/")


def _enter(name: str, folders: dict[str, dict[str, None]]) -> None:
    """Note a file in its folder, and that in its own."""
    while "/" in name:
        parent, _, own = name.rpartition("/")
        known = parent in folders
        folders.setdefault(parent, {})[own] = None
        if known:
            return
        name = parent


def is_url(text: Any) -> bool:
    """Whether this names something behind a URL; a path of a disk has no ``://``."""
    return "://" in str(text)
