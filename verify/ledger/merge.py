"""Bringing the entries of another ledger into this one."""

from __future__ import annotations

from verify.errors import CorruptDumpError
from verify.ledger import artifacts
from verify.ledger.check import check
from verify.ledger.entry import Entry
from verify.ledger.store import Ledger


def merge(into: Ledger, other: Ledger) -> list[Entry]:
    """Append what ``other`` holds and ``into`` does not, artifacts included; doing it again adds
    nothing. A merged entry keeps its time and names its number and hash in the other ledger.

    Raises:
        CorruptDumpError: ``other`` is not whole; nothing is taken from it then.
    """
    found = check(other)
    if not found.whole:
        raise CorruptDumpError(
            "a ledger that is not whole cannot be merged",
            where=other.folder,
            found="; ".join(found.problems[:3]),
            hint=f"run `verify ledger check {other.folder}`",
        )
    entries = list(other.entries())
    for entry in entries:
        for artifact in entry.artifacts:
            artifacts.put(into.folder, artifacts.path_of(other.folder, artifact.sha256))
    return into.append_merged(entries)
