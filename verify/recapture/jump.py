"""Where a difference grows at once: behind innocent rounding, the place of a defect."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from verify.bounds import Bound
from verify.compare.run import RowComparison
from verify.errors import ArgumentError
from verify.formats import get_format
from verify.recapture.result import Split

LEAST: Final = Bound(
    8.0,
    "operations amplify differences by small factors, and sizes estimated from 16 buckets have a "
    "standard error of a third; less than this is no place to look at",
)


def find_jump(compared: RowComparison) -> Split:
    """The record whose relative difference exceeds that of all records before it by the largest
    factor, and its first row that has a fair share in that.

    Raises:
        ArgumentError: nothing grows by :data:`LEAST`, or no sizes are known.
    """
    x = compared.alignment
    at = np.flatnonzero(compared.compared & np.isfinite(compared.measures.diff_sq))
    at = at[np.argsort(x.rows_a[at], kind="stable")]
    record = x.a.record[x.rows_a[at]]
    floats = x.a.is_of(lambda kind: get_format(kind.dtype).kind == "float")
    some = floats[record] & np.isfinite(compared.measures.ref_sq[at])
    at, record = at[some], record[some]
    diff_sq, ref_sq = compared.measures.diff_sq[at], compared.measures.ref_sq[at]
    sums = (np.bincount(record, part, len(x.a.records)) for part in (diff_sq, ref_sq))
    sizes = _relative(*(part.astype(np.float64) for part in sums))
    before = np.maximum.accumulate(np.concatenate([[0.0], sizes[:-1]]))
    factors = np.divide(sizes, before, out=np.zeros_like(sizes), where=before > 0.0)
    largest = float(factors.max(initial=0.0))
    if largest < LEAST.value:
        raise ArgumentError(
            "no difference grows at once",
            where="--around jump",
            found=f"a factor of {largest:.3g}" if largest else "no sizes of differences",
            allowed=f"{LEAST.value:.0f} or more",
            hint="sizes need sketches (--level digest) in the first pass; or name a TAP@STEP",
        )
    number = int(np.argmax(factors))
    own = record == number
    share = _relative(diff_sq[own], ref_sq[own])
    row = int(at[own][np.argmax(share >= sizes[number] / 2)])
    entry_a, entry_b = int(x.rows_a[row]), int(x.rows_b[row])
    code = int(x.a.sequence[entry_a])
    return Split(
        tap=x.a.records[number].tap,
        step_a=x.a.records[number].step,
        step_b=x.b.records[int(x.b.record[entry_b])].step,
        sequence=x.a.sequences[code],
        position=int(x.a.position[entry_a]),
    )


def _relative(diff_sq: NDArray[np.float64], ref_sq: NDArray[np.float64]) -> NDArray[np.float64]:
    share = np.divide(diff_sq, ref_sq, out=np.zeros_like(diff_sq), where=ref_sq > 0.0)
    return np.asarray(np.sqrt(share))
