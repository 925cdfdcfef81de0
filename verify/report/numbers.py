"""How numbers look in every renderer: three significant digits for measurements, exact counts."""

from __future__ import annotations

import math
from typing import Any

LARGEST_PLAIN_COUNT = 9_999_999
"""Longer integers do not fit a table column at 80 characters and are shown as measurements."""

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def measure(value: float | None) -> str:
    """Three significant digits: ``0.0540``, ``27.6``, ``1.23e-5``; ``-`` for a missing value."""
    if value is None:
        return "-"
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0.0:
        return "0"
    mantissa, exponent = f"{value:.2e}".split("e")
    power = int(exponent)
    if -3 <= power < 3:
        return f"{value:.{2 - power}f}"
    return f"{mantissa}e{power}"


def count(value: int | None) -> str:
    """An exact integer with thousands separators; beyond seven digits three significant ones."""
    if value is None:
        return "-"
    if abs(value) <= LARGEST_PLAIN_COUNT:
        return f"{value:,}"
    return _large(value)


def ulps(value: float | None) -> str:
    """A ULP distance: exact below 100,000 where it is a whole number."""
    if value is not None and abs(value) < 100_000 and value == int(value):
        return count(int(value))
    return _large(value) if isinstance(value, int) else measure(value)


def share(part: float, whole: float) -> str:
    """``part`` of ``whole`` in percent. Only exact zero and the exact whole print 0 and 100."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "<0.1 %"
    if part != whole and percent > 99.9:
        return ">99.9 %"
    return f"{percent:.3g} %"


def size(octets: int) -> str:
    """A number of bytes in decimal units."""
    value, unit = float(octets), 0
    while value >= 1000 and unit < len(_SIZES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{octets} B" if unit == 0 else f"{value:.3g} {_SIZES[unit]}"


def plural(n: int, one: str, many: str | None = None) -> str:
    """``1 row``, ``2 rows``, ``1,234 rows``."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def anything(value: Any) -> str:
    """A value of a free-form field: integers as counts, floats as measurements, the rest as is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else str(value)
    return count(value) if isinstance(value, int) else measure(value)


def _large(value: int) -> str:
    """Scientific notation that also works beyond the range of a float."""
    digits = str(abs(value))
    rounded = str(round(int(digits[:4]) / 10))
    power = len(digits) - 1 + (len(rounded) - 3)
    sign = "-" if value < 0 else ""
    return f"{sign}{rounded[0]}.{rounded[1:3]}e{power}"
