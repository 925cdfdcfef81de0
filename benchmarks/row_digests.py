"""How fast rows are digested, sketched and summarised, against xxh3 and a plain sum.

    python benchmarks/row_digests.py

Prints microseconds a row and GB/s of words, the best of several passes on one thread. xxh3 a row
is the speed of a hash that is not additive; a plain float64 sum is the cost of reading and widening.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import xxhash

from verify.dumps.digests import row_digests
from verify.dumps.summaries import row_sketches, row_statistics

CASES = (
    # rows, elements in a row, dtype, word type
    (1446, 1536, "float32", np.uint32),
    (1446, 576, "float32", np.uint32),
    (1446, 576, "bfloat16", np.uint16),
    (16, 49152, "float32", np.uint32),
    (1, 576, "float32", np.uint32),
)
PASSES = 7


def best_seconds(call: Callable[[], object]) -> float:
    """The shortest of ``PASSES`` runs, after one to warm up."""
    call()
    times = []
    for _ in range(PASSES):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def xxh3_rows(words: np.ndarray) -> list[int]:
    return [xxhash.xxh3_64_intdigest(row.data) for row in words]


def main() -> int:
    print(f"{'rows':>5} {'length':>6} {'dtype':<9} {'what':<10} {'us/row':>8} {'GB/s':>6}")
    for rows, length, dtype, kind in CASES:
        values = np.random.default_rng(0).standard_normal((rows, length)).astype(np.float32)
        shift = np.uint32(32 - 8 * np.dtype(kind).itemsize)
        words = (values.view(np.uint32) >> shift).astype(kind)
        calls: dict[str, Callable[[], object]] = {
            "digest": lambda w=words, d=dtype: row_digests(w, d),
            "sketch": lambda w=words, d=dtype: row_sketches(w, d),
            "statistics": lambda w=words, d=dtype: row_statistics(w, d),
            "xxh3": lambda w=words: xxh3_rows(w),
            "plain sum": lambda v=values: v.sum(axis=1, dtype=np.float64),
        }
        for name, call in calls.items():
            seconds = best_seconds(call)
            speed = words.nbytes / seconds / 1e9
            micro = seconds / rows * 1e6
            print(f"{rows:>5} {length:>6} {dtype:<9} {name:<10} {micro:>8.2f} {speed:>6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
