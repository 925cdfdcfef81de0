"""Three significant digits for measurements, exact counts, honest percentages."""

from __future__ import annotations

import math

import pytest

from verify.report.numbers import anything, count, measure, plural, share, size, ulps


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "-"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.054, "0.0540"),
        (27.6, "27.6"),
        (999.4, "999"),
        (999.6, "1.00e3"),
        (0.001, "0.00100"),
        (0.0009996, "0.00100"),
        (0.000123, "1.23e-4"),
        (-1.23456e-5, "-1.23e-5"),
        (1.7976931348623157e308, "1.80e308"),
        (5e-324, "4.94e-324"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_measure(value: float | None, wanted: str) -> None:
    assert measure(value) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "-"),
        (0, "0"),
        (1234567, "1,234,567"),
        (9_999_999, "9,999,999"),
        (10_000_000, "1.00e7"),
        (99_999_000, "1.00e8"),
        (-12_345_678, "-1.23e7"),
        (2**64 - 1, "1.84e19"),
        (10**400, "1.00e400"),  # beyond the range of a float
    ],
)
def test_count(value: int | None, wanted: str) -> None:
    assert count(value) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(None, "-"), (0.0, "0"), (3.0, "3"), (99_999, "99,999"), (100_000, "1.00e5"),
     (2**64 - 1, "1.84e19"), (2.5, "2.50"), (math.inf, "inf"), (math.nan, "NaN")],
)  # fmt: skip
def test_ulps(value: float | None, wanted: str) -> None:
    assert ulps(value) == wanted


@pytest.mark.parametrize(
    ("part", "whole", "wanted"),
    [(0, 5, "0 %"), (5, 5, "100 %"), (1, 3, "33.3 %"), (1, 10**6, "<0.1 %"),
     (10**6 - 1, 10**6, ">99.9 %"), (0, 0, "-")],
)  # fmt: skip
def test_share_says_0_and_100_only_where_exact(part: int, whole: int, wanted: str) -> None:
    assert share(part, whole) == wanted


def test_size_and_plural() -> None:
    assert [size(n) for n in (0, 999, 1000, 123_456_789, 2**70)] == [
        "0 B", "999 B", "1 kB", "123 MB", "1.18e+03 EB"]  # fmt: skip
    assert [plural(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_anything() -> None:
    shown = [anything(v) for v in (None, True, 7, 0.5, "text", [1, 2])]
    assert shown == ["-", "True", "7", "0.500", "text", "[1, 2]"]
