"""The distribution of every tap at once: one line a tap, one column a bin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.image import AxesImage

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison, TapComparison
from verify.report.numbers import plural
from verify.report.plots.choose import compared, label_taps, strided
from verify.report.plots.histograms import Shares, relative_shares, ulp_shares
from verify.report.plots.style import Plot, magnitude_map, new_figure, ulp_label

NAME_WIDTH = 30
LINES_LABELLED = 36
_FLOOR = 1e-6
"""Shares below one element in a million get the darkest colour."""


def draw_by_tap(result: BisectResult | Comparison) -> Plot | None:
    """Shares of elements per ULP octave and per relative-error bin for every compared tap; None
    where no tap that differs has histograms."""
    taps = [tap for tap in compared(result).taps if tap.ulps is not None]
    if not any(not tap.equal for tap in taps):
        return None
    height = 1.6 + 0.14 * max(8, min(len(taps), LINES_LABELLED))
    figure, (left, right) = new_figure(height, columns=2)
    _panel(left, taps, ulp_shares, "ULP distance", _ulp_ticks)
    image = _panel(right, taps, relative_shares, "relative error", _relative_ticks)
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
    label: str,
    ticks: Callable[[Axes, list[float], int], None],
) -> AxesImage:
    found = [shares_of(tap) for tap in taps]
    bins = [dict(zip(each.edges, each.shares, strict=False)) if each else {} for each in found]
    edges = sorted({edge for line in bins for edge, part in line.items() if part})
    start = 1 + max(2, len(edges) // 8)  # the equal share, a gap, the bins
    grid = np.full((len(taps), start + len(edges)), np.nan)
    for line, (each, parts) in enumerate(zip(found, bins, strict=True)):
        grid[line, 0] = (each.equal if each else 0.0) or np.nan
        grid[line, start:] = [parts.get(edge) or np.nan for edge in edges]
    image = axes.imshow(
        np.ma.masked_invalid(np.where(grid < _FLOOR, _FLOOR, grid)),
        aspect="auto",
        interpolation="nearest",
        norm=LogNorm(_FLOOR, 1.0),
        cmap=magnitude_map(),
    )
    axes.grid(visible=False)
    axes.set_xlabel(label)
    ticks(axes, edges, start)
    return image


def _ulp_ticks(axes: Axes, edges: list[float], start: int) -> None:
    shown = strided(list(range(len(edges))), 7)
    _set_ticks(axes, start, shown, [ulp_label(edges[i]) for i in shown])


def _relative_ticks(axes: Axes, edges: list[float], start: int) -> None:
    powers = [(i, math.log10(edge)) for i, edge in enumerate(edges)]
    # Edges are powers of ten rounded to float64, so their logarithms are whole to a few ULPs.
    whole = [(i, round(power)) for i, power in powers if abs(power - round(power)) < 1e-9]
    power = dict(whole)
    shown = strided(list(power), 6)
    _set_ticks(axes, start, shown, [f"$10^{{{power[i]}}}$" for i in shown])


def _set_ticks(axes: Axes, start: int, places: list[int], labels: list[str]) -> None:
    axes.set_xticks([0, *(start + i for i in places)], ["equal", *labels])
