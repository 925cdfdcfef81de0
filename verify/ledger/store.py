"""Appending to a ledger folder and reading it back.

``entries.jsonl`` holds the chain; ``head`` repeats the count and hash of the last entry, so that a
dropped tail is found as well as an edited middle; ``lock`` serialises writers.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from verify.env.secrets import redact_all
from verify.errors import DumpError, StorageError
from verify.ledger import artifacts
from verify.ledger.entry import GENESIS, Artifact, Entry, Merged, decode, encode

ENTRIES = "entries.jsonl"
HEAD = "head"
LOCK = "lock"
TAIL = 1 << 16


class Ledger:
    """A ledger folder. Reading needs no lock; :meth:`append` may be called by many processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / ENTRIES

    def append(self, kind: str, data: dict[str, Any], files: list[Path] | None = None) -> Entry:
        """Store ``files`` by content and write one entry that names them. Durable on return. What
        looks like a secret in ``data`` or in a text file is replaced before it is written.

        Raises:
            DumpError: a file cannot be read, or the ledger's last whole line is not an entry.
        """
        stored = [artifacts.put(self.folder, path) for path in files or []]
        with self._exclusive():
            return self._write(kind, redact_all(data), stored, None)

    def append_merged(self, entries: list[Entry]) -> list[Entry]:
        """Write entries of another ledger that this one does not hold yet, in their order."""
        with self._exclusive():
            known = {entry.origin() for entry in self.entries()}
            new = [entry for entry in entries if entry.origin() not in known]
            return [
                self._write(entry.kind, entry.data, entry.artifacts, _origin(entry), entry.time)
                for entry in new
            ]

    def entries(self) -> Iterator[Entry]:
        """The entries in order; an unfinished last line (a writer was killed) is not one.

        Raises:
            DumpError: no ledger there, or a whole line that is not an entry.
        """
        for number, line in enumerate(self.lines()):
            yield decode(line, f"{self.path}:{number + 1}")

    def lines(self) -> Iterator[bytes]:
        """Whole lines, without their newlines."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            raise DumpError(
                "there is no ledger",
                where=self.folder,
                allowed=f"a folder that holds {ENTRIES}",
                hint="the first append makes one",
            ) from None
        with file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line[:-1]

    def head(self) -> tuple[int, str] | None:
        """Count and last hash as the last writer left them; None before the first entry."""
        try:
            count, _, last = (self.folder / HEAD).read_text().strip().partition(" ")
            return int(count), last
        except (FileNotFoundError, ValueError):
            return None

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._set_torn_line_aside()
            yield

    def _set_torn_line_aside(self) -> None:
        """A killed writer leaves a last line without a newline: keep its bytes beside the ledger
        and say so in an entry, so that nothing vanishes in silence."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            whole = _end_of_last_line(file.fileno())
            torn = os.pread(file.fileno(), TAIL, whole)
            if not torn:
                return
            aside = self.folder / f"torn-{whole}.bin"
            aside.write_bytes(torn)
            file.truncate(whole)
            os.fsync(file.fileno())
        self._write("recovery", {"set_aside": aside.name, "bytes": len(torn)}, [], None)

    def _last(self) -> Entry | None:
        if not self.path.exists():
            return None
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start, want = size, TAIL
            while start > 0:
                start = max(0, size - want)
                lines = os.pread(file.fileno(), size - start, start).split(b"\n")
                if len(lines) > 2 or start == 0:
                    return decode(lines[-2], f"last line of {self.path}") if size else None
                want *= 4
        return None

    def _write(
        self,
        kind: str,
        data: dict[str, Any],
        stored: list[Artifact],
        merged: Merged | None,
        time: str | None = None,
    ) -> Entry:
        last = self._last()
        entry = Entry(
            number=last.number + 1 if last else 0,
            time=time or datetime.now(UTC).isoformat(timespec="seconds"),
            kind=kind,
            data=data,
            artifacts=stored,
            merged=merged,
            previous=last.hash if last else GENESIS,
        ).sealed()
        _durably(self.path, encode(entry), os.O_APPEND)
        _durably(self.folder / ".head", f"{entry.number + 1} {entry.hash}\n".encode(), os.O_TRUNC)
        os.replace(self.folder / ".head", self.folder / HEAD)
        return entry


def _origin(entry: Entry) -> Merged:
    return entry.merged or Merged(number=entry.number, hash=entry.hash, previous=entry.previous)


def _durably(path: Path, data: bytes, flag: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o644)
    try:
        written = os.write(handle, data)
        os.fsync(handle)
    except OSError as error:
        raise StorageError("the ledger could not be written", where=path, found=error) from error
    finally:
        os.close(handle)
    if written != len(data):
        # The next writer finds the torn line and sets it aside.
        raise StorageError("the disk is full", where=path, found=f"{written} of {len(data)} bytes")


def _end_of_last_line(handle: int) -> int:
    """Offset just behind the last newline, 0 if there is none."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - TAIL)
        place = os.pread(handle, end - start, start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        end = start
    return 0
