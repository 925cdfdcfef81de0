"""What is kept of a row beside its digest: a CountSketch and seven statistics.

Two sketches of rows estimate the L2 norm of their difference without either row. The order of
every addition is fixed, so a row has the same bits on every machine. docs/digests.md specifies both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from verify.dumps.digests import random_words
from verify.errors import ArgumentError
from verify.formats import decode, get_format

Values = NDArray[np.float64]

BUCKETS: Final = 16
SIGN_STREAM: Final = 1
ROTATION_STREAM: Final = 2
STATISTICS: Final = ("max_abs", "sum", "sum_sq", "nan", "pos_inf", "neg_inf", "zero")
# Elements handled at a time. Their float64 temporaries stay in the cache and below 128 KiB, from where
# on glibc's malloc maps fresh pages for each, which cost more than the arithmetic.
_BLOCK: Final = 1 << 14


class SketchPlan(NamedTuple):
    """Where the elements of a row of one length go.

    ``source`` [groups * 16]: index into the row padded with zeros to whole groups of 16; the
    elements of bucket b stand at b, b + 16, ... ``sign`` [groups * 16]: +1 or -1.
    """

    lead: int
    groups: int
    source: NDArray[np.intp]
    sign: Values


@lru_cache(maxsize=64)
def sketch_plan(offset: int, length: int) -> SketchPlan:
    """Plan for elements ``offset..offset+length``: group k (16 elements) is dealt to the 16 buckets,
    element j of it to bucket ``j xor rotation(k)``, so that no bucket gets two of a group."""
    first, lead = divmod(offset, BUCKETS)
    groups = -(-(lead + length) // BUCKETS)
    rotation = (random_words(ROTATION_STREAM, first, groups) >> np.uint64(60)).astype(np.intp)
    place = np.arange(BUCKETS) ^ rotation[:, None]
    source = (place + BUCKETS * np.arange(groups)[:, None]).reshape(-1)
    bits = random_words(SIGN_STREAM, first * BUCKETS, groups * BUCKETS) >> np.uint64(63)
    sign = 1.0 - 2.0 * bits.astype(np.float64)[source]
    return SketchPlan(lead, groups, source, sign)


def row_sketches(words: NDArray[Any], dtype_name: str, offset: int = 0) -> NDArray[np.float32]:
    """Sketches of the finite elements of each row, float32 ``[rows, 16]``.

    Args:
        words: raw words [rows, elements], unsigned.
        dtype_name: name in ``verify.formats.FORMATS``; complex64 counts as pairs of float32.
        offset: index of the first element inside the whole row; sketches of shards add up.

    Raises:
        ArgumentError: unknown dtype, or words of another width.
    """
    found = np.zeros((len(words), BUCKETS), np.float32)
    for rows, values in _blocks(words, dtype_name):
        plan = sketch_plan(offset * _parts(dtype_name), values.shape[1])
        padded = _padded(_finite(values), plan)
        signed = padded[:, plan.source]
        signed *= plan.sign
        with np.errstate(over="ignore"):  # a sum beyond float32 is kept as infinity
            found[rows] = tree_sum(signed.reshape(len(values), plan.groups, BUCKETS))
    return found


def estimate_l2(a: NDArray[Any], b: NDArray[Any]) -> Values:
    """Estimated ||b - a|| of two rows from their sketches [..., 16], float64 ``[...]``.

    Its square is unbiased over the choice of signs, with a standard error of at most sqrt(2/16)
    of the squared norm; the rounding of the sketches to float32 comes on top (docs/digests.md).
    """
    delta = np.asarray(b, np.float64) - np.asarray(a, np.float64)
    norm: Values = np.sqrt((delta * delta).sum(axis=-1))
    return norm


def row_statistics(words: NDArray[Any], dtype_name: str) -> Values:
    """Statistics of each row, float64 ``[rows, 7]`` in the order of ``STATISTICS``: max |x|, sum and
    sum of squares over the finite elements; counts of NaN, +inf, -inf and zeros of either sign.

    Raises:
        ArgumentError: unknown dtype, or words of another width.
    """
    found = np.zeros((len(words), len(STATISTICS)))
    places = np.zeros((2, len(words), BUCKETS))  # sums over the groups, of values and squares
    for rows, values in _blocks(words, dtype_name):
        out = found[rows]
        sizes = np.abs(values)
        largest = sizes.max(axis=1, initial=0.0)
        # A maximum hands NaN and infinities on, so one look at it tells of the whole block.
        whole = bool(np.isfinite(largest).all())
        finite = values if whole else _finite(values)
        out[:, 0] = largest if whole else np.abs(finite).max(axis=1, initial=0.0)
        if not whole:
            out[:, 3] = np.isnan(values).sum(axis=1)
            out[:, 4] = np.isposinf(values).sum(axis=1)
            out[:, 5] = np.isneginf(values).sum(axis=1)
        if not whole or sizes.min(initial=1.0) == 0.0:
            out[:, 6] = (values == 0.0).sum(axis=1)
        padded = _padded(finite, sketch_plan(0, values.shape[1]))
        with np.errstate(over="ignore"):
            place = sizes if sizes.shape == padded.shape else None
            squares = np.multiply(padded, padded, out=place)
            places[1, rows] = tree_sum(squares.reshape(len(values), -1, BUCKETS))
            # Last, since it overwrites the values, which are this block's own.
            places[0, rows] = tree_sum(padded.reshape(len(values), -1, BUCKETS))
    with np.errstate(over="ignore"):
        found[:, 1], found[:, 2] = tree_sum(places[0]), tree_sum(places[1])
    return found


def tree_sum(terms: NDArray[Any]) -> NDArray[Any]:
    """Sum over axis 1 in the fixed order: the upper half is added to the lower until one is left;
    of an odd number the last of the lower half is carried along. Overwrites ``terms``."""
    n = terms.shape[1]
    if n == 0:
        return np.zeros((terms.shape[0], *terms.shape[2:]), terms.dtype)
    while n > 1:
        half = (n + 1) // 2
        terms[:, : n - half] += terms[:, half:n]
        n = half
    first: NDArray[Any] = terms[:, 0]
    return first


def _padded(values: Values, plan: SketchPlan) -> Values:
    """``values`` with +0 before and behind, to whole groups of 16."""
    behind = plan.groups * BUCKETS - plan.lead - values.shape[1]
    if plan.lead == 0 and behind == 0:
        return values
    return np.pad(values, ((0, 0), (plan.lead, behind)))


def _finite(values: Values) -> Values:
    """``values`` with 0 for NaN and infinities; the same object where there is none."""
    finite = np.isfinite(values)
    return values if finite.all() else np.where(finite, values, 0.0)


def _parts(dtype_name: str) -> int:
    """Real numbers in one element."""
    return 2 if get_format(dtype_name).kind == "complex" else 1


def _blocks(words: NDArray[Any], dtype_name: str) -> Any:
    """Blocks of rows with their values as float64: (slice of rows, [rows, real numbers])."""
    if words.ndim != 2:
        raise ArgumentError(
            "a row matrix has two axes", where="words", found=f"{words.ndim} axes", allowed=2
        )
    step = max(1, _BLOCK // max(1, words.shape[1]))
    for start in range(0, len(words), step):
        rows = slice(start, start + step)
        values = decode(words[rows], dtype_name)
        if values.dtype == np.complex128:
            values = np.ascontiguousarray(values).view(np.float64)
        yield rows, values.astype(np.float64, copy=False)
