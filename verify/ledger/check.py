"""Is a ledger whole? Every line, every link of the chain, every artifact."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from verify.errors import DumpError
from verify.ledger import artifacts
from verify.ledger.entry import GENESIS, Entry, decode, digest, encode
from verify.ledger.store import Ledger


@dataclass(slots=True)
class LedgerCheck:
    """What ``verify ledger check`` found. ``problems`` is empty for a whole ledger."""

    entries: int = 0
    artifacts: int = 0
    last: str = ""
    """Hash of the last entry."""
    problems: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not self.problems


def check(ledger: Ledger, *, must_hold: str | None = None) -> LedgerCheck:
    """Read everything once and compare it with the hashes that name it.

    Args:
        must_hold: the hash of an entry, noted elsewhere: a ledger that was written anew as a whole
            has no such entry.

    Raises:
        DumpError: there is no ledger.
    """
    result = LedgerCheck()
    previous, hashes = GENESIS, []
    seen: set[str] = set()
    for number, line in enumerate(ledger.lines()):
        place = f"line {number + 1}"
        try:
            entry = decode(line, place)
        except DumpError as error:
            result.problems.append(f"{place}: not an entry ({error.found})")
            continue
        result.problems += _chain(place, number, entry, previous)
        if encode(entry) != line + b"\n":
            result.problems.append(f"{place}: edited, it is not written as entries are")
        previous = entry.hash
        hashes.append(entry.hash)
        result.entries += 1
        for artifact in entry.artifacts:
            if artifact.sha256 not in seen:
                seen.add(artifact.sha256)
                result.problems += _artifact(place, ledger.folder, artifact.sha256, artifact.name)
    result.artifacts = len(seen)
    result.last = hashes[-1] if hashes else ""
    if must_hold is not None and must_hold not in hashes:
        result.problems.append(f"no entry has the hash {must_hold}: the chain was written anew")
    result.problems += _head(ledger, hashes)
    return result


def _chain(place: str, number: int, entry: Entry, previous: str) -> list[str]:
    problems = []
    if entry.hash != digest(entry):
        problems.append(f"{place}: edited, its content does not give its hash")
    if entry.previous != previous:
        problems.append(f"{place}: does not follow the line before (dropped, added or reordered)")
    if entry.number != number:
        problems.append(f"{place}: says it is entry {entry.number}, stands as {number}")
    return problems


def _artifact(place: str, folder: Path, sha256: str, name: str) -> list[str]:
    path = artifacts.path_of(folder, sha256)
    if not path.is_file():
        return [f"{place}: artifact {name} ({sha256[:12]}) is missing"]
    if artifacts.sha256_of(path) != sha256:
        return [f"{place}: artifact {name} ({sha256[:12]}) was changed"]
    return []


def _head(ledger: Ledger, hashes: list[str]) -> list[str]:
    """The head may lag behind (a writer was killed between the two writes), never lead."""
    head = ledger.head()
    if head is None:
        # A kill inside the very first append can leave one entry and no head.
        return [] if len(hashes) <= 1 else ["the file `head` is missing or not readable"]
    count, last = head
    if count > len(hashes):
        return [f"{count - len(hashes)} entries at the end are missing: `head` counts {count}"]
    if count < 1 or hashes[count - 1] != last:
        return [f"`head` names another entry {count} than the ledger holds"]
    return []
