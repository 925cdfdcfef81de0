"""The distribution of every tap at once: one line a tap, one column a bin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.image import AxesImage

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison, TapComparison
from verify.report.numbers import plural
from verify.report.plots.choose import compared, holds_floats, label_taps
from verify.report.plots.histograms import Shares, relative_shares, ulp_shares
from verify.report.plots.style import Plot, magnitude_map, new_figure, ulp_label

NAME_WIDTH = 30
LINES_LABELLED = 36
_FLOOR = 1e-6
"""Shares below one element in a million get the darkest colour."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis in whole columns: ``per_tick`` columns for each power of ``base``."""

    name: str
    base: int
    per_tick: int
    ticks: int
    label: Callable[[int], str]


_ULPS = _Scale("ULP distance", 2, 1, 7, lambda power: ulp_label(2.0**power))
_RELATIVE = _Scale("relative error", 10, 4, 6, lambda power: f"$10^{{{power}}}$")
"""Quarter decades, the bins of a comparison."""


def draw_by_tap(result: BisectResult | Comparison) -> Plot | None:
    """Shares of elements per ULP octave and per relative-error bin for every compared tap; None
    where no tap that differs has histograms."""
    taps = [tap for tap in compared(result).taps if holds_floats(tap)]
    if not any(not tap.equal for tap in taps):
        return None
    height = 1.6 + 0.14 * max(8, min(len(taps), LINES_LABELLED))
    figure, (left, right) = new_figure(height, columns=2)
    _panel(left, taps, ulp_shares, _ULPS)
    image = _panel(right, taps, relative_shares, _RELATIVE)
    places, labels = label_taps([tap.tap for tap in taps], LINES_LABELLED, NAME_WIDTH)
    left.set_yticks(places, labels)
    left.set_ylabel("tap, in execution order")
    right.set_yticks(places, [""] * len(places))
    bar = figure.colorbar(image, ax=[left, right], location="bottom", aspect=50, extend="min")
    bar.set_label("share of the tap's elements (log scale)")
    alt = (
        f"For each of {plural(len(taps), 'tap')} in execution order, the share of its elements in "
        "every bin of ULP distance and of relative error; the first column is the equal share."
    )
    return Plot("distribution-by-tap", "Distributions of every tap", alt, figure)


def _panel(
    axes: Axes,
    taps: Sequence[TapComparison],
    shares_of: Callable[[TapComparison], Shares | None],
    scale: _Scale,
) -> AxesImage:
    lines = [_columns(shares_of(tap), scale) for tap in taps]
    filled = sorted({column for _, bins in lines for column in bins})
    first, last = (filled[0], filled[-1]) if filled else (0, 0)
    start = 1 + max(2, (last - first) // 6)  # the equal share, a gap, the bins
    grid = np.full((len(taps), start + last - first + 1), np.nan)
    for line, (equal, bins) in enumerate(lines):
        grid[line, 0] = equal or np.nan
        for column, part in bins.items():
            grid[line, start + column - first] = part
    image = axes.imshow(
        np.ma.masked_invalid(np.where(grid < _FLOOR, _FLOOR, grid)),
        aspect="auto",
        interpolation="nearest",
        norm=LogNorm(_FLOOR, 1.0),
        cmap=magnitude_map(),
    )
    axes.grid(visible=False)
    axes.set_xlabel(scale.name)
    step = max(1, -(-(last - first + 1) // (scale.ticks * scale.per_tick))) * scale.per_tick
    shown = [c for c in range(first, last + 1) if c % step == 0]
    axes.set_xticks(
        [0, *(start + c - first for c in shown)],
        ["equal", *(scale.label(c // scale.per_tick) for c in shown)],
    )
    return image


def _columns(found: Shares | None, scale: _Scale) -> tuple[float, dict[int, float]]:
    """The equal share, and the shares of the filled bins by their number on the common axis."""
    if found is None:
        return 0.0, {}
    numbers = [round(scale.per_tick * math.log(edge, scale.base)) for edge in found.edges[:-1]]
    bins: dict[int, float] = {}
    for number, part in zip(numbers, found.shares, strict=True):
        if part:
            bins[number] = bins.get(number, 0.0) + part
    return found.equal, bins
