"""Which figures a result has, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison
from verify.report.plots.by_tap import draw_by_tap
from verify.report.plots.distributions import draw_relative_distribution, draw_ulp_distribution
from verify.report.plots.growth import draw_depth, draw_positions
from verify.report.plots.heatmap import draw_heatmap
from verify.report.plots.margins import draw_margins
from verify.report.plots.style import Plot, styled

FORMATS = ("png", "svg", "pdf")
HEATMAPS = 8
"""Sequences that get a heatmap of their own."""

_OF_BISECT: tuple[Callable[[BisectResult], Plot | None], ...] = (
    draw_margins,
    draw_depth,
    draw_positions,
)
_OF_EITHER: tuple[Callable[[BisectResult | Comparison], Plot | None], ...] = (
    draw_ulp_distribution,
    draw_relative_distribution,
    draw_by_tap,
)


def draw_plots(result: BisectResult | Comparison) -> Iterator[Plot]:
    """Every figure that the result has data for, one at a time (each holds its pixels in memory).
    A comparison has distributions only."""
    with styled():
        if isinstance(result, BisectResult):
            for draw in _OF_BISECT:
                yield from _present(draw(result))
            for number, heatmap in enumerate(result.heatmap[:HEATMAPS], 1):
                name = "heatmap" if number == 1 else f"heatmap-{number}"
                yield from _present(draw_heatmap(heatmap, name))
        for either in _OF_EITHER:
            yield from _present(either(result))


def _present(plot: Plot | None) -> Iterator[Plot]:
    if plot is not None:
        yield plot
