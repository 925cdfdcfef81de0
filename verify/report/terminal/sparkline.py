"""Curves in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
EQUAL = "·"
BEYOND = "!"


def sparkline(values: Sequence[float], width: int) -> str:
    """One character a value, or a group of neighbours by its largest value where there are more
    than ``width``. The bars are logarithmic between the smallest and the largest positive value;
    ``·`` stands for exact equality (0) and ``!`` for NaN or infinity."""
    shown = _condense(values, width)
    positive = [math.log10(v) for v in shown if v > 0 and math.isfinite(v)]
    if not positive:
        return "".join(_bar(v, 0.0, 0.0) for v in shown)
    return "".join(_bar(v, min(positive), max(positive)) for v in shown)


def _condense(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [i * len(values) // width for i in range(width + 1)]
    return [_largest(values[a:b]) for a, b in pairwise(edges)]


def _largest(values: Sequence[float]) -> float:
    return next((v for v in values if math.isnan(v)), max(values))


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return BEYOND
    if value <= 0:
        return EQUAL
    if high == low:
        return BARS[-1]
    return BARS[round((math.log10(value) - low) / (high - low) * (len(BARS) - 1))]
