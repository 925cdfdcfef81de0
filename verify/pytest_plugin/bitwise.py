"""Equal to the last bit, or the table of where and by how much not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.pytest_plugin.arrays import Array, as_array
from verify.pytest_plugin.outcome import SHOWN, Outcome, columns, labelled, place, refused, where
from verify.report.numbers import measure, ulps
from verify.ulp import INCOMPARABLE, distance

_CHECK = "verify_bitwise"


def check_bitwise(a: Any, b: Any) -> Outcome:
    """Compare bits: NaN payloads and the sign of zero count. Nothing compared is a failure.

    Raises:
        ArgumentError: an argument that is no array of numbers.
    """
    x, y = as_array(a, "a"), as_array(b, "b")
    if x.format != y.format or x.shape != y.shape:
        return refused(_CHECK, "not of one kind", f"a is {x.title}", f"b is {y.title}")
    if x.words.size == 0:
        return refused(_CHECK, f"nothing to compare, both are {x.title}")
    differ = np.asarray(x.words != y.words)
    numbers = {"elements": differ.size, "different": int(differ.sum())}
    if not differ.any():
        return Outcome(_CHECK, True, f"{_CHECK}: equal, {x.title}", numbers=numbers)
    headline = (
        f"{_CHECK}: {numbers['different']:,} of {differ.size:,} elements differ in their bits"
    )
    lines = [labelled("a and b", x.title), *where(differ)]
    if x.format.kind != "complex":
        lines += _sizes(x, y, differ, numbers)
    return Outcome(_CHECK, False, headline, lines, numbers)


def _sizes(x: Array, y: Array, differ: NDArray[np.bool_], numbers: dict[str, Any]) -> list[str]:
    apart = distance(x.words, y.words, x.format).reshape(-1)
    a, b = x.values().reshape(-1), y.values().reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(b.astype(np.float64) - a.astype(np.float64))
        scale = float(np.linalg.norm(a.astype(np.float64)))
        relative = float(np.linalg.norm(gap)) / scale if scale else float("inf")
    ordered = apart[differ.reshape(-1)]
    real = ordered[ordered != INCOMPARABLE]
    nan = int((ordered == INCOMPARABLE).sum())
    numbers |= {"max_ulp": int(real.max()) if real.size else None, "nan": nan}
    numbers |= {"max_abs": float(gap.max()), "relative_l2": relative}
    lines = []
    if real.size:
        middle = f"median {ulps(float(np.median(real)))}, largest {ulps(int(real.max()))}"
        lines.append(labelled("ULPs apart", middle))
    if nan:
        lines.append(labelled("NaN", f"{nan:,} elements where a side is NaN"))
    lines.append(labelled("size", f"max abs {measure(gap.max())}, relative L2 {measure(relative)}"))
    return [*lines, "the worst, and then the first:", *_worst(x, y, a, b, apart, differ)]


def _worst(
    x: Array,
    y: Array,
    a: NDArray[Any],
    b: NDArray[Any],
    apart: NDArray[np.uint64],
    differ: NDArray[np.bool_],
) -> list[str]:
    at = np.flatnonzero(differ)
    worst = at[np.argsort(apart[at], kind="stable")[::-1][: SHOWN - 1]]
    chosen = list(dict.fromkeys([*worst.tolist(), int(at[0])]))
    digits = (x.format.bits + 3) // 4
    p, q = x.words.reshape(-1), y.words.reshape(-1)
    rows = [
        (
            place(i, x.shape),
            str(a[i]),
            str(b[i]),
            f"{int(p[i]):#0{digits + 2}x}",
            f"{int(q[i]):#0{digits + 2}x}",
            "NaN" if apart[i] == INCOMPARABLE else ulps(int(apart[i])),
        )
        for i in chosen
    ]
    return columns(("index", "a", "b", "bits a", "bits b", "ULPs"), rows)
