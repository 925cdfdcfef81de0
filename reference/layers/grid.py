"""The grid of a storage format around real values: rounding, spacing and rounding cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format, decode, encode, get_format

Array = NDArray[np.float64]


def round_to(values: Array, fmt: str | Format) -> Array:
    """``values`` rounded once, to nearest even, to ``fmt``; ``float64`` leaves them alone."""
    fmt = get_format(fmt)
    if fmt.name == "float64":
        return np.asarray(values, dtype=np.float64)
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    rounded: Array = decode(encode(flat, fmt), fmt)
    return rounded.reshape(np.shape(values))


def half_ulp(fmt: str | Format) -> float:
    """Largest relative error of one rounding to a normal number of ``fmt``: 2^-precision."""
    return float(2.0 ** -get_format(fmt).precision)


def spacing(values: Array, fmt: str | Format) -> Array:
    """Distance from each |value|, once rounded down to the grid, to the next grid point above.

    This is the ULP: ``2^(max(floor(log2|v|), min_exponent) - mantissa_bits)``; the smallest
    subnormal at zero, and the ULP of the largest finite number for infinities and NaN.
    """
    fmt = get_format(fmt)
    finite = np.where(np.isfinite(values), np.abs(values), fmt.max_finite)
    exponent = np.frexp(np.minimum(finite, fmt.max_finite))[1] - 1
    exponent = np.where(finite == 0.0, fmt.min_exponent, exponent)
    ulps: Array = np.ldexp(1.0, np.maximum(exponent, fmt.min_exponent) - fmt.mantissa_bits)
    return ulps


def cell(values: Array, fmt: str | Format) -> tuple[Array, Array]:
    """The real numbers that round to each grid point: ``(lower end, upper end)``.

    ``values`` are on the grid of ``fmt``. A cell reaches half a spacing to either side; below a
    power of two the spacing halves. An infinity owns everything from half a spacing beyond the
    largest finite number; NaN owns nothing (both ends are NaN).
    """
    fmt = get_format(fmt)
    magnitude = np.abs(values)
    above = spacing(values, fmt)
    mantissa = np.frexp(magnitude)[0]
    narrows = (mantissa == 0.5) & (magnitude > fmt.min_normal) & np.isfinite(magnitude)
    inner = magnitude - np.where(narrows, above / 4, above / 2)
    outer = magnitude + above / 2
    overflow = fmt.max_finite + float(spacing(np.asarray(fmt.max_finite), fmt)) / 2
    inner = np.where(np.isinf(magnitude), overflow, inner)
    negative = np.signbit(values)
    return np.where(negative, -outer, inner), np.where(negative, -inner, outer)


def tie_distance(exact: Array, fmt: str | Format) -> Array:
    """Distance from each real number to the nearest tie between two grid points."""
    low, high = cell(round_to(exact, fmt), fmt)
    with np.errstate(invalid="ignore"):
        return np.minimum(exact - low, high - exact)


def distance_to_cell(exact: Array, values: Array, fmt: str | Format) -> Array:
    """How far ``exact`` must move, signed, before it rounds to ``values``.

    0 where it does so already; NaN where exactly one side is NaN or the other infinity.
    """
    low, high = cell(values, fmt)
    with np.errstate(invalid="ignore"):
        move = np.where(exact < low, low - exact, np.where(exact > high, high - exact, 0.0))
        settled = (exact == values) | (np.isnan(exact) & np.isnan(values))
        broken = np.isnan(exact) != np.isnan(values)
    return np.where(settled, 0.0, np.where(broken, np.nan, move))
