"""How far apart the elements of a few taps are: histogram and ECDF, in ULPs and relatively."""

from __future__ import annotations

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison, TapComparison
from verify.report.names import shorten
from verify.report.numbers import share
from verify.report.plots.choose import choose_taps
from verify.report.plots.histograms import Shares, relative_shares, ulp_shares
from verify.report.plots.style import Plot, escape_math, new_figure, series_style, ulp_label

NAME_WIDTH = 34


def draw_ulp_distribution(result: BisectResult | Comparison) -> Plot | None:
    """ULP distances of chosen taps; None where no differing tap has an ULP histogram."""
    return _draw(
        result,
        ulp_shares,
        name="ulp-distribution",
        title="ULP distances",
        unit="distance in ULPs of the coarser dtype",
        base=2,
    )


def draw_relative_distribution(result: BisectResult | Comparison) -> Plot | None:
    """Relative errors of chosen taps; None where no differing tap has such a histogram."""
    return _draw(
        result,
        relative_shares,
        name="relative-distribution",
        title="Relative errors",
        unit="|b − a| / max(|a|, smallest normal), no unit",
        base=10,
    )


def _draw(
    result: BisectResult | Comparison,
    shares_of: Callable[[TapComparison], Shares | None],
    *,
    name: str,
    title: str,
    unit: str,
    base: int,
) -> Plot | None:
    pairs = [(tap.tap, shares_of(tap)) for tap in choose_taps(result)]
    curves = [(tap, found) for tap, found in pairs if found is not None and any(found.shares)]
    short = shorten((tap for tap, _ in curves), NAME_WIDTH)
    labelled = [(short[tap], found) for tap, found in curves]
    return draw_curves(labelled, name=name, title=title, unit=unit, base=base)


def draw_curves(
    curves: list[tuple[str, Shares]],
    *,
    name: str,
    title: str,
    unit: str,
    base: int,
    of: str = "tap",
) -> Plot | None:
    """Histogram and ECDF of labelled shares; None where there is none.

    Args:
        unit: of the horizontal axis, whose logarithm has base ``base``.
        of: what one curve is, for the words of the figure.
    """
    if not curves:
        return None
    figure, (left, right) = new_figure(3.5 + 0.17 * len(curves), columns=2)
    low, high = _span([found for _, found in curves])
    for index, (what, found) in enumerate(curves):
        label = f"{escape_math(what)} ({share(found.equal, 1.0)} equal{_outside(found)})"
        _histogram(left, found, index, label)
        _ecdf(right, found, index, low, high)
    for axes in (left, right):
        axes.set_xscale("log", base=base)
        axes.set_xlim(low, high)
        axes.set_xlabel(unit)
        if base == 2:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: ulp_label(value)))
    left.set_title(f"{title}: histogram")
    left.set_ylabel("share of elements in the bin (log)")
    left.set_yscale("log")
    right.set_title("ECDF")
    right.set_ylabel("share of elements below")
    right.set_ylim(-0.02, 1.02)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return Plot(name, f"{title} per {of}", _alt(title, curves, of), figure)


def _span(curves: list[Shares]) -> tuple[float, float]:
    """The bins that any curve fills."""
    filled = [
        (low, high)
        for found in curves
        for low, high, part in zip(found.edges, found.edges[1:], found.shares, strict=False)
        if part
    ]
    return min(low for low, _ in filled), max(high for _, high in filled)


def _histogram(axes: Axes, found: Shares, index: int, label: str) -> None:
    # Empty bins leave a gap: a log axis has no place for them.
    heights = [part or math.nan for part in found.shares]
    axes.stairs(heights, found.edges, label=label, baseline=None, **series_style(index))


def _ecdf(axes: Axes, found: Shares, index: int, low: float, high: float) -> None:
    """Flat before the first and after the last bin, to the ends of the axis of all curves."""
    sums = found.cumulative()
    edges = [min(found.edges[0], low), *found.edges, max(found.edges[-1], high)]
    axes.plot(edges, [sums[0], *sums, sums[-1]], **series_style(index))


def _outside(found: Shares) -> str:
    return f", {share(found.outside, 1.0)} without a distance" if found.outside else ""


def _alt(title: str, curves: list[tuple[str, Shares]], of: str) -> str:
    said = [f"{what}: {share(found.equal, 1.0)} equal" for what, found in curves]
    return f"Histogram and cumulative distribution. {title} of {len(curves)} {of}s. " + "; ".join(
        said
    )
