"""The 64-bit digest of a row: equal rows have equal digests, and unequal rows almost never.

    sum over elements of  zero-extended bits * odd weight(global element index)   modulo 2^64

mixed at the end with the dtype and the length of the row. Each element has its own product, so
that nothing cancels between neighbours of one machine word; the sum is additive, so that shards of
a row add up. docs/digests.md derives the chance of a miss and has test vectors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.formats import word_dtype

Words = NDArray[Any]
Sums = NDArray[np.uint64]

GOLDEN: Final = 0x9E3779B97F4A7C15
"""Increment of splitmix64 (Steele, Lea and Flood, OOPSLA 2014, doi:10.1145/2660193.2660195)."""
WEIGHT_STREAM: Final = 0
_U64: Final = (1 << 64) - 1


def mix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, a bijection of 64-bit words (Stafford's "variant 13")."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def random_words(stream: int, start: int, count: int) -> NDArray[np.uint64]:
    """Words ``start..start+count`` of a stream: output ``i`` of splitmix64 seeded ``stream``."""
    index = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    return mix64(np.uint64(stream) + index * np.uint64(GOLDEN))


@lru_cache(maxsize=64)  # 8 bytes a lane; a model has few row lengths
def weights(start: int, count: int) -> NDArray[np.uint64]:
    """Odd weights of lanes ``start..start+count``, read-only."""
    found = random_words(WEIGHT_STREAM, start, count) | np.uint64(1)
    found.flags.writeable = False
    return found


def lanes(words: Words) -> Words:
    """The lanes of a row matrix: its words, and 64-bit words as two of 32 bits, low one first."""
    if words.dtype.itemsize != 8:
        return words
    halves: Words = np.ascontiguousarray(words).view(np.uint32)
    return halves


def lanes_per_element(dtype_name: str) -> int:
    """2 for dtypes of 64 bits, else 1."""
    return 2 if word_dtype(dtype_name).itemsize == 8 else 1


def partial_sums(words: Words, dtype_name: str, offset: int = 0) -> Sums:
    """Sums before finalising, uint64 ``[rows]``; those of the shards of a row add up (mod 2^64).

    Args:
        words: raw words [rows, elements], unsigned.
        dtype_name: name in ``verify.formats.FORMATS``.
        offset: index of the first element inside the whole row.

    Raises:
        ArgumentError: words of another width or shape, or a negative offset.
    """
    _check(words, dtype_name, offset)
    terms = lanes(words)
    scale = lanes_per_element(dtype_name)
    weight = weights(offset * scale, terms.shape[1])
    # einsum multiplies and adds in one buffered pass and wraps like C: no uint64 copy of the words.
    sums: Sums = np.einsum("ij,j->i", terms, weight)
    return sums


def finalise(sums: Sums, dtype_name: str, row_length: int) -> Sums:
    """Digests of whole rows of ``row_length`` elements, uint64 ``[rows]``: a bijection of ``sums``
    for one dtype and length."""
    return mix64(np.asarray(sums, np.uint64) ^ salt(dtype_name, row_length))


@lru_cache(maxsize=256)
def salt(dtype_name: str, row_length: int) -> NDArray[np.uint64]:
    """What finalising mixes into a sum, uint64 ``[1]``."""
    return mix64(np.array([(fnv1a(dtype_name) + row_length) & _U64], np.uint64))


def row_digests(words: Words, dtype_name: str, offset: int = 0) -> Sums:
    """Digests of the rows of a row matrix, uint64 ``[rows]``.

    Args:
        words: raw words [rows, row_length], unsigned.
        dtype_name: name in ``verify.formats.FORMATS``.
        offset: index of the first element; not 0 for a shard that is digested on its own.

    Raises:
        ArgumentError: words of another width or shape, or a negative offset.
    """
    return finalise(partial_sums(words, dtype_name, offset), dtype_name, words.shape[1])


def fnv1a(name: str) -> int:
    """64-bit FNV-1a of the ASCII name: how a dtype enters the digest.

    Source: http://www.isthe.com/chongo/tech/comp/fnv/
    """
    state = 0xCBF29CE484222325
    for byte in name.encode("ascii"):
        state = ((state ^ byte) * 0x100000001B3) & _U64
    return state


def _check(words: Words, dtype_name: str, offset: int) -> None:
    expected = word_dtype(dtype_name)
    if words.ndim != 2 or words.dtype != expected:
        raise ArgumentError(
            "a digest is taken of a row matrix of raw words",
            where="words",
            found=f"{words.dtype} with {words.ndim} axes",
            allowed=f"{expected} [rows, row_length] for {dtype_name}",
        )
    if offset < 0:
        raise ArgumentError("a negative offset", where="offset", found=offset, allowed="0 or above")
