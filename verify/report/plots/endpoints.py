"""The figures of an endpoint comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from verify.endpoints.result import (
    EndpointComparison,
    PairCheck,
    ReferenceCheck,
    ReferenceError,
    SpeedCheck,
)
from verify.report.endpoints_words import short_cases
from verify.report.names import shorten
from verify.report.numbers import measure
from verify.report.plots.choose import CURVES, evenly
from verify.report.plots.distributions import draw_curves
from verify.report.plots.histograms import Shares, octave_shares
from verify.report.plots.style import (
    CYCLE,
    INK,
    MARKERS,
    Plot,
    drawable,
    escape_math,
    new_figure,
    series_style,
    styled,
)

PANELS = 6
ROWS = 40
"""Cases that a figure with one line a case shows."""
NAME_WIDTH = 34


def draw_endpoint_plots(result: EndpointComparison) -> Iterator[Plot]:
    """Every figure that the result has data for, one at a time."""
    with styled():
        for draw in (draw_floor, draw_errors, draw_distances, draw_speed):
            plot = draw(result)
            if plot is not None:
                yield plot


def draw_distances(result: EndpointComparison) -> Plot | None:
    """ULP distances of pairs whose bits differ; None where all are equal."""
    _, case = short_cases(result.cases)
    pairs = [
        (f"{case[check.case]} · {check.b}{f' · {tensor.name}' * bool(tensor.name)}", tensor)
        for check in result.checks
        if isinstance(check, PairCheck)
        for tensor in check.tensors
        if not tensor.equal
    ]
    chosen = [pairs[i] for i in evenly(len(pairs), CURVES)]
    short = shorten((name for name, _ in chosen), NAME_WIDTH)
    curves = [(short[name], octave_shares(tensor.ulps)) for name, tensor in chosen]
    return draw_curves(
        [(name, found) for name, found in curves if found is not None and any(found.shares)],
        name="endpoint-ulps",
        title=f"ULP distances from {result.endpoints[0].name}",
        unit="distance in ULPs",
        base=2,
        of="pair",
    )


def _references(result: EndpointComparison) -> list[tuple[str, str, ReferenceError, float | None]]:
    """Case (with the output's name), endpoint, errors and limit, in the order of the result."""
    _, case = short_cases(result.cases)
    return [
        (
            f"{case[check.case]}{f' · {error.name}' * bool(error.name)}",
            check.endpoint,
            error,
            check.limit,
        )
        for check in result.checks
        if isinstance(check, ReferenceCheck)
        for error in check.tensors
    ]


def draw_floor(result: EndpointComparison) -> Plot | None:
    """Error over the floor: one line a case, one marker an endpoint."""
    found = [each for each in _references(result) if math.isfinite(each[2].over_floor)]
    cases = list(dict.fromkeys(case for case, *_ in found))
    if not cases:
        return None
    shown = [cases[i] for i in evenly(len(cases), ROWS)]
    place = {case: len(shown) - 1 - i for i, case in enumerate(shown)}
    figure, (axes,) = new_figure(1.5 + 0.24 * len(shown))
    for index, fact in enumerate(result.endpoints):
        points = [e for e in found if e[1] == fact.name and e[0] in place]
        if points:
            axes.plot(
                [each[2].over_floor for each in points],
                [place[each[0]] + _aside(index, len(result.endpoints)) for each in points],
                MARKERS[index % len(MARKERS)],
                color=CYCLE[index % len(CYCLE)],
                label=drawable(fact.name, NAME_WIDTH),
            )
        limits = {each[3] for each in points} - {None}
        for limit in limits:
            axes.axvline(float(limit or 0.0), color=CYCLE[index % len(CYCLE)], linestyle=":")
    axes.axvline(1.0, color=INK, linewidth=0.8)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.95), max(high, 1.1))
    _case_axis(axes, shown)
    axes.set_title("Error over the floor of FP64 rounded once")
    axes.set_xlabel("error / floor (1: as good as the format allows; dotted: declared limit)")
    _legend(figure, axes, len(result.endpoints))
    said = [f"{case}, {name}: {measure(error.over_floor)}" for case, name, error, _ in found[:12]]
    return Plot("endpoint-floor", "Error over the floor", f"{'; '.join(said)}.", figure)


def _aside(index: int, count: int) -> float:
    """Marks of one line stand a little apart: equal errors stay visible."""
    return 0.3 * ((count - 1) / 2 - index) / max(1, count - 1)


def draw_errors(result: EndpointComparison) -> Plot | None:
    """Distribution of the errors against FP64, one panel a case, one curve an endpoint."""
    found = _references(result)
    cases = list(dict.fromkeys(case for case, _, error, _ in found if error.errors.counts))
    chosen = [cases[i] for i in evenly(len(cases), PANELS)]
    if not chosen:
        return None
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, panels = new_figure(0.6 + 2.5 * rows, columns, rows)
    order = [fact.name for fact in result.endpoints]
    for case, axes in zip(chosen, panels, strict=False):
        for _, name, error, _ in (each for each in found if each[0] == case):
            _stairs(axes, error, order.index(name), drawable(name, NAME_WIDTH))
        axes.set_title(drawable(case, 46))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("|out − exact| in ULPs of the format")
        axes.set_ylabel("share in the bin (log)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
        axes.axvline(0.5, color=INK, linewidth=0.8)
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    _legend(figure, panels[0], len(order))
    said = [f"{case}, {name}: largest {measure(e.max_ulp)} ULP" for case, name, e, _ in found[:12]]
    return Plot(
        "endpoint-errors",
        "Errors against FP64",
        f"Histograms; the line marks half a ULP. {'; '.join(said)}.",
        figure,
    )


def _stairs(axes: Axes, error: ReferenceError, index: int, label: str) -> None:
    shares = error_shares(error)
    if any(shares.shares):
        heights = [part or math.nan for part in shares.shares]
        axes.stairs(heights, shares.edges, label=label, baseline=None, **series_style(index))
    else:
        axes.plot([], [], label=label, **series_style(index))


def error_shares(error: ReferenceError) -> Shares:
    """The histogram of one endpoint in shares of all its elements."""
    found = error.errors
    total = max(1, sum(found.counts) + found.exact + found.nonfinite)
    return Shares(
        edges=[math.pow(2.0, edge) for edge in found.edges] if found.counts else [],
        shares=[number / total for number in found.counts],
        equal=found.exact / total,
        outside=found.nonfinite / total,
    )


def _power(value: float) -> str:
    if value >= 1:
        return f"{value:.0f}" if value < 1024 else f"$2^{{{math.log2(value):.0f}}}$"
    return f"1/{1 / value:.0f}" if value > 2e-3 else f"$2^{{{math.log2(value):.0f}}}$"


def draw_speed(result: EndpointComparison) -> Plot | None:
    """Median time ratios with their intervals, one line a case and pair."""
    timed = [check for check in result.speed if check.pairs]
    if not timed:
        return None
    shown = [timed[i] for i in evenly(len(timed), ROWS)]
    names = list(dict.fromkeys(check.b for check in shown))
    figure, (axes,) = new_figure(1.5 + 0.26 * len(shown))
    for index, name in enumerate(names):
        points = [(len(shown) - 1 - i, c) for i, c in enumerate(shown) if c.b == name]
        _ratios(axes, points, index, drawable(name, NAME_WIDTH))
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    _, case = short_cases(result.cases)
    _case_axis(axes, [case[check.case] for check in shown])
    base = escape_math(result.endpoints[0].name)
    axes.set_title(f"Time over that of {base}")
    axes.set_xlabel(f"ratio of times (log), median and 95 % interval, {shown[0].clock}")
    _legend(figure, axes, len(names))
    said = [f"{c.case}, {c.b}: {c.ratio:.3f} [{c.low:.3f}, {c.high:.3f}]" for c in shown[:12]]
    return Plot("endpoint-speed", "Time ratios", f"{'; '.join(said)}.", figure)


def _ratios(axes: Axes, points: Sequence[tuple[int, SpeedCheck]], index: int, label: str) -> None:
    ratio = [check.ratio for _, check in points]
    below = [check.ratio - check.low for _, check in points]
    above = [check.high - check.ratio for _, check in points]
    axes.errorbar(
        ratio,
        [place for place, _ in points],
        xerr=[below, above],
        fmt=MARKERS[index % len(MARKERS)],
        color=CYCLE[index % len(CYCLE)],
        capsize=3,
        label=label,
    )


def _case_axis(axes: Axes, cases: Sequence[str]) -> None:
    short = shorten(cases, NAME_WIDTH)
    axes.set_yticks(range(len(cases)), [escape_math(short[case]) for case in reversed(cases)])
    axes.set_ylim(-0.6, len(cases) - 0.4)


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=min(columns, 4))
