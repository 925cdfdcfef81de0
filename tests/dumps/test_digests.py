"""The row digest: against plain integers, and on the pairs that weaker fingerprints miss."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.dumps.digests import finalise, lanes, partial_sums, row_digests, weights
from verify.errors import ArgumentError
from verify.formats import FORMATS, word_dtype

M64 = (1 << 64) - 1
DOC = Path(__file__).parents[2] / "docs" / "digests.md"


def splitmix64(stream: int, index: int) -> int:
    """Output ``index`` of splitmix64, in Python integers: shares nothing with the package."""
    z = (stream + (index + 1) * 0x9E3779B97F4A7C15) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def mix(z: int) -> int:
    return splitmix64(z - 0x9E3779B97F4A7C15, 0)


def slow_sum(row: list[int], bits: int, offset: int = 0) -> int:
    if bits == 64:
        row = [half for word in row for half in (word & 0xFFFFFFFF, word >> 32)]
        offset *= 2
    return sum(x * (splitmix64(0, offset + i) | 1) for i, x in enumerate(row)) & M64


def slow_digest(row: list[int], dtype: str, bits: int) -> int:
    name = 0xCBF29CE484222325
    for byte in dtype.encode():
        name = ((name ^ byte) * 0x100000001B3) & M64
    return mix(slow_sum(row, bits) ^ mix((name + len(row)) & M64))


def words(row: list[int], dtype: str = "float32") -> np.ndarray:
    return np.array([row], dtype=word_dtype(dtype))


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_dtype_agrees_with_plain_integers(dtype: str) -> None:
    width = word_dtype(dtype).itemsize * 8
    rng = np.random.default_rng(7)
    for length in (0, 1, 2, 17, 100):
        row = rng.integers(0, (1 << width) - 1, length, dtype=np.uint64, endpoint=True)
        got = row_digests(row.astype(word_dtype(dtype))[None], dtype)
        assert int(got[0]) == slow_digest([int(x) for x in row], dtype, width)


def test_the_generator_is_splitmix64() -> None:
    # First outputs for seed 0, as in the reference code at https://prng.di.unimi.it/splitmix64.c
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [splitmix64(0, i) for i in range(3)] == expected
    assert weights(0, 3).tolist() == [value | 1 for value in expected]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 40))
def test_sums_of_shards_add_up(row: list[int], cut: int) -> None:
    left, right = words(row[:cut]), words(row[cut:])
    total = partial_sums(left, "float32") + partial_sums(right, "float32", offset=len(row[:cut]))
    assert finalise(total, "float32", len(row)) == row_digests(words(row), "float32")


def test_sums_of_shards_add_up_in_64_bits() -> None:
    row = np.random.default_rng(3).integers(0, M64, (2, 9), dtype=np.uint64)
    total = partial_sums(row[:, :4], "int64") + partial_sums(row[:, 4:], "int64", offset=4)
    assert (finalise(total, "int64", 9) == row_digests(row, "int64")).all()


def test_dtype_and_length_enter() -> None:
    zeros = np.zeros((1, 4), np.uint16)
    found = {
        int(row_digests(zeros, "float16")[0]),
        int(row_digests(zeros, "bfloat16")[0]),
        int(row_digests(zeros[:, :3], "float16")[0]),
        int(row_digests(np.zeros((1, 4), np.uint32), "float32")[0]),
    }
    assert len(found) == 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float64"])
def test_one_bit_anywhere_is_seen(dtype: str) -> None:
    kind = word_dtype(dtype)
    row = np.random.default_rng(1).integers(0, 255, 33).astype(kind)
    bits = kind.itemsize * 8
    flipped = np.repeat(row[None], len(row) * bits, axis=0)
    for element in range(len(row)):
        for bit in range(bits):
            flipped[element * bits + bit, element] ^= kind.type(1 << bit)
    assert not (row_digests(flipped, dtype) == row_digests(row[None], dtype)).any()


def test_a_single_element_can_never_be_missed() -> None:
    """d * odd = 0 modulo 2^64 asks for 2^64 | d, and |d| < 2^32: weights being odd is enough."""
    assert (weights(0, 1 << 16) % 2 == 1).all()


def test_no_two_sign_flips_and_no_swap_are_missed_up_to_65536_elements() -> None:
    """A pair of equal or opposite differences vanishes only if two weights are equal or opposite
    modulo 2^33 (docs/digests.md); no two of the first 65,536 are, and beyond some are."""

    def clashes(count: int) -> int:
        low = weights(0, count) & np.uint64((1 << 33) - 1)
        opposite = (np.uint64(1 << 33) - low) & np.uint64((1 << 33) - 1)
        return count - len(np.unique(np.minimum(low, opposite)))

    assert clashes(1 << 16) == 0
    assert clashes(1 << 17) == 2  # the search does find clashes where there are some


# What others use, and why it is not enough. Each maps a row of float32 to one number.
def xor_hash(row: np.ndarray) -> int:
    return int(np.bitwise_xor.reduce(row.view(np.uint32)))


def l1_norm(row: np.ndarray) -> float:
    return float(np.abs(row.astype(np.float64)).sum())


def packed_hash(row: np.ndarray) -> int:
    packed = row.view(np.uint64)
    return int((packed * weights(0, len(packed))).sum())


def digest(row: np.ndarray) -> int:
    return int(row_digests(row.view(np.uint32)[None], "float32")[0])


ROW = np.round(np.random.default_rng(5).standard_normal(64) * 64).astype(np.float32) / 64


def flipped(*at: int) -> np.ndarray:
    row = ROW.copy()
    row[list(at)] *= -1
    return row


def swapped_halves() -> np.ndarray:
    return np.concatenate([ROW[32:], ROW[:32]])


def rope_row(theta: float) -> np.ndarray:
    half = np.cos(7.0 * theta ** (-np.arange(32) / 32)).astype(np.float32)
    return np.concatenate([half, half])


PAIRS = [
    # name, row, row, the weak fingerprints that call them equal
    ("permutation", ROW, ROW[np.random.default_rng(2).permutation(64)], {"xor", "l1"}),
    ("swapped halves", ROW, swapped_halves(), {"xor", "l1"}),
    ("two sign flips, odd columns", ROW, flipped(3, 9), {"xor", "l1", "packed"}),
    ("two sign flips, even columns", ROW, flipped(4, 8), {"xor", "l1"}),
    ("64 sign flips", ROW, -ROW, {"xor", "l1"}),
    ("RoPE tables of another base", rope_row(1e4), rope_row(5e5), {"xor"}),
]


@pytest.mark.parametrize(("name", "a", "b", "missed"), PAIRS, ids=[p[0] for p in PAIRS])
def test_structured_pairs(name: str, a: np.ndarray, b: np.ndarray, missed: set[str]) -> None:
    weak = {"xor": xor_hash, "l1": l1_norm, "packed": packed_hash}
    assert a.tobytes() != b.tobytes()
    assert {key for key, f in weak.items() if f(a) == f(b)} == missed
    assert digest(a) != digest(b)


def test_random_pairs_of_sign_flips_are_all_seen() -> None:
    """With a chance of 2^-32 each, 20,000 rows should show none."""
    rng = np.random.default_rng(11)
    base = rng.integers(0, 1 << 32, 96, dtype=np.uint32)
    rows = np.repeat(base[None], 20_000, axis=0)
    for row in rows:
        row[rng.choice(96, 2 * rng.integers(1, 20), replace=False)] ^= np.uint32(1 << 31)
    assert not (row_digests(rows, "float32") == row_digests(base[None], "float32")).any()


def test_signed_zeros_and_nan_payloads_differ() -> None:
    base = row_digests(words([0, 0x7FC00000]), "float32")
    assert row_digests(words([1 << 31, 0x7FC00000]), "float32") != base
    assert row_digests(words([0, 0x7FC00001]), "float32") != base


def test_64_bit_words_become_two_lanes() -> None:
    assert lanes(np.array([[0x1_0000_0002]], np.uint64)).tolist() == [[2, 1]]


def test_rows_need_not_be_contiguous() -> None:
    whole = np.random.default_rng(9).integers(0, 1 << 32, (6, 20), dtype=np.uint32)
    part = whole[::2, ::2]
    assert (row_digests(part, "float32") == row_digests(part.copy(), "float32")).all()
    wide = np.random.default_rng(9).integers(0, M64, (6, 20), dtype=np.uint64)[::2, ::2]
    assert (row_digests(wide, "float64") == row_digests(wide.copy(), "float64")).all()


def test_wrong_words_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"row matrix of raw words[\s\S]*uint16 .*float16"):
        row_digests(np.zeros((1, 2), np.uint32), "float16")
    with pytest.raises(ArgumentError, match="negative offset"):
        partial_sums(np.zeros((1, 2), np.uint32), "float32", offset=-1)


def test_the_test_vectors_of_the_document() -> None:
    lines = re.findall(
        r"^\| `(\w+)` \| `([0-9a-f ]*)` \| `([0-9a-f]{16})` \|", DOC.read_text(), re.MULTILINE
    )
    assert len(lines) >= 6
    for dtype, row, expected in lines:
        values = np.array([[int(word, 16) for word in row.split()]], word_dtype(dtype))
        assert f"{int(row_digests(values, dtype)[0]):016x}" == expected
        bits = word_dtype(dtype).itemsize * 8
        assert f"{slow_digest(values[0].tolist(), dtype, bits):016x}" == expected
