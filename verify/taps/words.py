"""The words of presented records: elements of stored rows in another order, or sums of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.dumps.digests import row_digests
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record, Rows
from verify.formats import decode, encode, word_dtype
from verify.taps.columns import Columns

Words = NDArray[Any]

_BLOCK = 4 << 20
"""Bytes read at a time where rows are only digested."""


@dataclass(frozen=True, slots=True)
class Making:
    """How the rows of a presented record come from stored records."""

    sources: tuple[Record, ...]
    """Stored records, all with the same rows; more than one is joined."""
    add: bool = False
    columns: Columns | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the rows are those of the one source, as they are."""
        return len(self.sources) == 1 and self.columns is None

    @property
    def row_length(self) -> int:
        if self.columns is not None:
            return len(self.columns)
        lengths = [source.row_length for source in self.sources]
        return lengths[0] if self.add else sum(lengths)

    def row_bytes(self) -> int:
        return self.row_length * word_dtype(self.sources[0].dtype).itemsize

    def of(self, parts: list[Words]) -> Words:
        """Rows of the presented record from the same rows of its sources."""
        dtype = self.sources[0].dtype
        if len(parts) == 1:
            found = parts[0]
        elif self.add:
            found = added(parts, dtype)
        else:
            found = np.concatenate(parts, axis=1)
        return found if self.columns is None else np.ascontiguousarray(found[:, self.columns])


def added(parts: list[Words], dtype: str) -> Words:
    """Sum of rows, rounded to their dtype after each addition, from left to right.

    A float64 sum of two values of at most 24 bits, rounded once more to their format, is their
    correctly rounded sum (Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3),
    1995): the bits are those of any addition that rounds correctly.
    """
    total = parts[0]
    for part in parts[1:]:
        with np.errstate(invalid="ignore", over="ignore"):
            total = encode(decode(total, dtype) + decode(part, dtype), dtype)
    return total


def read(dump: Dump, making: Making, start: int, stop: int | None) -> Words:
    """Rows ``start:stop`` of a presented record."""
    return making.of([dump.read_words(source, start, stop) for source in making.sources])


def blocks(dump: Dump, making: Making, block_bytes: int) -> Iterator[tuple[int, Words]]:
    """All rows in blocks of about ``block_bytes``, verified at the end as those of a dump are."""
    step = max(1, block_bytes // max(1, making.row_bytes()))
    stored = [dump.read_blocks(source, step * _row_bytes(source)) for source in making.sources]
    for parts in zip(*stored, strict=True):
        yield parts[0][0], making.of([words for _, words in parts])


def rows(dump: Dump, making: Making) -> Rows:
    """Identities and digests; sketches and statistics only where the rows are stored as they are."""
    stored = dump.rows(making.sources[0])
    if making.is_stored:
        return stored
    dtype = making.sources[0].dtype
    digests = [row_digests(words, dtype) for _, words in blocks(dump, making, _BLOCK)]
    digest = np.concatenate([*digests, np.zeros(0, np.uint64)])
    return Rows(stored.sequence, stored.position, stored.visit, digest)


def same_rows(dump: Dump, sources: tuple[Record, ...]) -> bool:
    """Whether records have the same rows in the same order."""
    first, *others = (dump.rows(source) for source in sources)
    return all(
        same_places(first, other) and np.array_equal(first.visit, other.visit) for other in others
    )


def same_places(a: Rows, b: Rows) -> bool:
    """Whether rows stand at the same positions of the same sequences, however often computed."""
    return np.array_equal(a.position, b.position) and np.array_equal(a.sequence, b.sequence)


def shape(making: Making) -> tuple[str, list[int]]:
    """Axes and shape: as stored where the length of a row stays, else its tokens and one axis."""
    source = making.sources[0]
    if making.row_length == source.row_length:
        return source.axes, source.shape
    tokens = [(a, n) for a, n in zip(source.axes.split(), source.shape, strict=True) if a in "bts"]
    axes = [*tokens, ("c", making.row_length)]
    return " ".join(name for name, _ in axes), [size for _, size in axes]


def strides(sizes: list[int]) -> list[int]:
    """Strides of a contiguous tensor."""
    return [prod(sizes[place + 1 :]) for place in range(len(sizes))]


def _row_bytes(record: Record) -> int:
    return max(1, record.row_length * word_dtype(record.dtype).itemsize)
