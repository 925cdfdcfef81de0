"""One line of a ledger, and the hash that chains it to the line before."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from verify.errors import DumpError

GENESIS = "0" * 64
"""What the first entry names as its predecessor."""


class Artifact(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A file that an entry rests on, stored by content under ``artifacts/``."""

    name: str
    sha256: str
    bytes: int
    redacted: bool = False
    """What looked like a secret was replaced in the stored copy."""


class Merged(msgspec.Struct, kw_only=True, frozen=True):
    """Where a merged entry stood before: its number and its hash in the other ledger."""

    number: int
    hash: str
    previous: str


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that happened. ``hash`` covers every other field, ``previous`` included."""

    number: int
    """Place in this ledger, from 0."""
    time: str
    """UTC, ISO 8601, seconds."""
    kind: str
    """For example ``gate``, ``waiver``, ``report``, ``recovery``."""
    data: dict[str, Any]
    artifacts: list[Artifact] = msgspec.field(default_factory=list)
    merged: Merged | None = None
    previous: str
    hash: str = ""

    def sealed(self) -> Entry:
        """This entry with its hash filled in."""
        return msgspec.structs.replace(self, hash=digest(self))

    def origin(self) -> str:
        """The hash that this entry has in the ledger where it was first written."""
        return self.merged.hash if self.merged else self.hash


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Entry)


def digest(entry: Entry) -> str:
    """SHA-256 hex of the entry's canonical JSON with an empty ``hash``."""
    blank = msgspec.structs.replace(entry, hash="")
    return hashlib.sha256(_encoder.encode(blank)).hexdigest()


def encode(entry: Entry) -> bytes:
    """One line of the ledger: JSON with sorted keys and a newline at its end."""
    return _encoder.encode(entry) + b"\n"


def decode(line: bytes, where: str) -> Entry:
    """Read one line.

    Raises:
        DumpError: the line is not an entry; ``where`` names it.
    """
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DumpError(
            "a ledger line is not an entry",
            where=where,
            found=str(error),
            hint="run `verify ledger check` to see what is intact",
        ) from error
