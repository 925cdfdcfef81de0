"""How the difference grows along the depth of the model and along the positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from verify.bisect.result import BisectResult, GrowthPoint
from verify.formats import FORMATS
from verify.report.grouping import by_sequence
from verify.report.names import printable
from verify.report.numbers import measure, plural
from verify.report.plots.choose import label_taps
from verify.report.plots.style import INK, MARKERS, Plot, drawable, new_figure, series_style

SEQUENCES = 6
NAME_WIDTH = 26
TAPS_LABELLED = 16


def draw_depth(result: BisectResult) -> Plot | None:
    """Relative L2 and largest ULP distance over the taps in execution order; None where nothing
    differs."""
    points = result.growth
    if not any(_drawn(point.relative_l2) for point in points):
        return None
    figure, (top, bottom) = new_figure(5.6, rows=2)
    _curve(top, range(len(points)), [point.relative_l2 for point in points], 0)
    _unit_roundoffs(top, result, points)
    top.set_ylabel("relative L2 (log)")
    top.set_title("Growth along the depth of the model")
    ordered = [(i, float(p.max_ulp)) for i, p in enumerate(points) if p.max_ulp is not None]
    _curve(bottom, [i for i, _ in ordered], [value for _, value in ordered], 1)
    bottom.set_ylabel("largest ULP distance (log)")
    if any(_drawn(value) for _, value in ordered):
        bottom.set_yscale("log", base=2)
    top.sharex(bottom)
    top.tick_params(labelbottom=False)
    places, labels = label_taps([point.tap for point in points], TAPS_LABELLED, NAME_WIDTH)
    bottom.set_xticks(places, labels, rotation=40, ha="right", rotation_mode="anchor")
    bottom.set_xlabel("tap, in execution order")
    return Plot("growth-depth", "Growth along the depth", _depth_alt(points), figure)


def draw_positions(result: BisectResult) -> Plot | None:
    """Relative L2 of the residual stream over the positions, one curve a sequence; None where
    nothing differs."""
    tracks = by_sequence(result.positions)
    if not any(_drawn(point.relative_l2) for point in result.positions):
        return None
    figure, (axes,) = new_figure(3.2)
    for index, sequence in enumerate(list(tracks)[:SEQUENCES]):
        track = tracks[sequence]
        _curve(
            axes,
            [point.position for point in track],
            [point.relative_l2 for point in track],
            index,
            drawable(sequence),
        )
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_xlabel("position (token)")
    axes.set_ylabel("relative L2 (log)")
    axes.set_title("Growth along the positions")
    if len(tracks) > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    hidden = len(tracks) - SEQUENCES
    more = f" {plural(hidden, 'further sequence')} not drawn." if hidden > 0 else ""
    largest = max((p for p in result.positions if _drawn(p.relative_l2)), key=_size)
    alt = (
        f"Relative L2 over {plural(len(result.positions), 'position')}; largest "
        f"{measure(largest.relative_l2)} at position {largest.position}.{more}"
    )
    return Plot("growth-positions", "Growth along the positions", alt, figure)


def _size(point: object) -> float:
    return float(getattr(point, "relative_l2", 0.0))


def _drawn(value: float) -> bool:
    """A log axis shows positive finite values only."""
    return math.isfinite(value) and value > 0


def _curve(
    axes: Axes, x: Sequence[int], values: Sequence[float], index: int, label: str = ""
) -> None:
    """A curve on a log axis; exact equality is marked at the lower edge, NaN and infinity at the
    upper one."""
    style = series_style(index)
    dense = len(values) > 80
    axes.plot(
        x,
        [value if _drawn(value) else math.nan for value in values],
        marker="" if dense else MARKERS[index % len(MARKERS)],
        markersize=3.5,
        label=label,
        **style,
    )
    if any(_drawn(value) for value in values):
        axes.set_yscale("log")
    marks = (
        ([p for p, v in zip(x, values, strict=True) if v == 0], 0.02, "|", "bitwise equal"),
        (
            [p for p, v in zip(x, values, strict=True) if not math.isfinite(v)],
            0.98,
            "^",
            "NaN or infinite",
        ),
    )
    for places, height, marker, name in marks:
        if places:
            axes.plot(
                places,
                [height] * len(places),
                transform=axes.get_xaxis_transform(),
                linestyle="",
                marker=marker,
                markersize=5,
                color=style["color"],
                clip_on=False,
            )
            axes.annotate(
                name,
                (places[0], height),
                xycoords=("data", "axes fraction"),
                xytext=(2, 5 if height < 0.5 else -12),
                textcoords="offset points",
                fontsize=8,
            )


def _unit_roundoffs(axes: Axes, result: BisectResult, points: Sequence[GrowthPoint]) -> None:
    """Lines at the unit roundoff of the dtypes that occur: half an ULP of 1, 2^-precision."""
    taps = {point.tap for point in points}
    names = {
        dtype
        for tap in result.comparison.taps
        if tap.tap in taps
        for dtype in (tap.dtype_a, tap.dtype_b)
    }
    for name in sorted(names):
        found = FORMATS.get(name)
        if found is None or found.kind != "float" or not found.mantissa_bits:
            continue
        axes.axhline(2.0**-found.precision, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            f"unit roundoff of {name}, $2^{{-{found.precision}}}$",
            (1.0, 2.0**-found.precision),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )


def _depth_alt(points: Sequence[GrowthPoint]) -> str:
    drawn = [point for point in points if _drawn(point.relative_l2)]
    first, largest = drawn[0], max(drawn, key=_size)
    return (
        f"Relative L2 over {plural(len(points), 'tap')} in execution order: "
        f"{measure(first.relative_l2)} at {printable(first.tap)}, the first that differs; "
        f"largest {measure(largest.relative_l2)} at {printable(largest.tap)}."
    )
