"""Within a bound that has a reason, element by element, or the table of what breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.bounds import Bound
from verify.errors import ArgumentError
from verify.pytest_plugin.arrays import as_array
from verify.pytest_plugin.outcome import SHOWN, Outcome, columns, labelled, place, refused, where
from verify.report.numbers import measure

_CHECK = "verify_within"


def check_within(actual: Any, exact: Any, bound: Bound | Any, why: str = "") -> Outcome:
    """``|actual - exact| <= bound`` for every element; NaN and unequal infinities break any bound.

    Args:
        actual: array of any format.
        exact: the same shape, in a format at least as wide (float64 by preference).
        bound: a :class:`verify.bounds.Bound`, absolute; or one number an element (broadcast), with
            the reason in ``why``.

    Raises:
        ArgumentError: no reason for the bound, or arguments that are no arrays of numbers.
    """
    x, y = as_array(actual, "actual"), as_array(exact, "exact")
    if x.shape != y.shape:
        return refused(_CHECK, "shapes differ", f"actual is {x.title}", f"exact is {y.title}")
    if x.words.size == 0:
        return refused(_CHECK, f"nothing to compare, both are {x.title}")
    limit, reason = _limit(bound, why, x.shape)
    a, b = x.values().astype(np.float64), y.values().astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(a == b, 0.0, np.abs(a - b))  # equal infinities are no error
    broken = ~(error <= limit)
    used = np.where(error == 0.0, 0.0, error / np.maximum(limit, np.finfo(np.float64).tiny))
    worst = float(np.max(np.where(np.isnan(used), np.inf, used)))
    numbers = {"elements": a.size, "broken": int(broken.sum()), "largest_bound_used": worst}
    said = f"largest share of the bound {measure(worst)}"
    if not broken.any():
        return Outcome(_CHECK, True, f"{_CHECK}: within, {said}", numbers=numbers)
    headline = f"{_CHECK}: {numbers['broken']:,} of {a.size:,} elements break the bound, {said}"
    lines = [labelled("bound", reason), labelled("actual", x.title), labelled("exact", y.title)]
    lines += [*where(broken), "the worst:", *_worst(a, b, error, limit, used, broken)]
    return Outcome(_CHECK, False, headline, lines, numbers)


def _limit(bound: Any, why: str, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], str]:
    reason = bound.why if isinstance(bound, Bound) else why
    value = bound.value if isinstance(bound, Bound) else as_array(bound, "bound").values()
    if not reason.strip():
        raise ArgumentError(
            "a bound needs the reason for its value",
            where="bound",
            hint="pass verify.bounds.Bound(value, why), or an array with why=...",
        )
    try:
        limit = np.broadcast_to(np.asarray(value, np.float64), shape)
    except ValueError:
        raise ArgumentError(
            "the bound does not fit the arrays",
            where="bound",
            found=f"shape {list(np.shape(value))}",
            allowed=f"one number, or a shape that broadcasts to {list(shape)}",
        ) from None
    if not bool((limit >= 0).all()):
        raise ArgumentError("a bound is a number >= 0", where="bound", found="negative or NaN")
    return limit, reason


def _worst(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    error: NDArray[np.float64],
    limit: NDArray[np.float64],
    used: NDArray[np.float64],
    broken: NDArray[np.bool_],
) -> list[str]:
    at = np.flatnonzero(broken)
    size = np.where(np.isnan(used), np.inf, used).reshape(-1)
    chosen = at[np.argsort(-size[at], kind="stable")[:SHOWN]]
    rows = []
    for i in chosen.tolist():
        cells = (a.flat[i], b.flat[i], error.flat[i], limit.flat[i], size[i])
        rows.append((place(i, a.shape), *(f"{float(cell):.6g}" for cell in cells)))
    return columns(("index", "actual", "exact", "error", "bound", "used"), rows)
