"""How the difference grows along the depth of the model and along the positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from verify.bisect.result import BisectResult, GrowthPoint
from verify.bisect.taps import is_residual, without_layer
from verify.formats import FORMATS
from verify.report.grouping import by_sequence
from verify.report.names import printable
from verify.report.numbers import measure, plural
from verify.report.plots.choose import label_taps
from verify.report.plots.style import GREY, INK, MARKERS, Plot, drawable, new_figure, series_style

SEQUENCES = 6
NAME_WIDTH = 26
CURVES = 4
DENSE = 80
"""More points than this are drawn without markers."""
TAPS_LABELLED = 16


def draw_depth(result: BisectResult) -> Plot | None:
    """Relative L2 and largest ULP distance over the taps in execution order; None where nothing
    differs."""
    points = result.growth
    if not any(_drawn(point.relative_l2) for point in points):
        return None
    figure, (top, bottom) = new_figure(5.8, rows=2)
    kinds = _kinds(result)
    for axes, value_of in ((top, _relative), (bottom, _ulps)):
        found = [value_of(point) for point in points]
        rest = [i for i, point in enumerate(points) if without_layer(point.tap) not in kinds]
        _dots(axes, rest, [found[i] for i in rest])
        for index, kind in enumerate(kinds):
            mine = [i for i, point in enumerate(points) if without_layer(point.tap) == kind]
            _curve(axes, mine, [found[i] for i in mine], index, drawable(kind, 40))
        _edge_marks(axes, range(len(points)), found)
    _unit_roundoffs(top, result, points)
    top.set_ylabel("relative L2 (log)")
    top.set_title("Growth along the depth of the model")
    bottom.set_ylabel("largest ULP distance (log)")
    if bottom.get_yscale() == "log":
        bottom.set_yscale("log", base=2)
    top.sharex(bottom)
    top.tick_params(labelbottom=False)
    places, labels = label_taps([point.tap for point in points], TAPS_LABELLED, NAME_WIDTH)
    bottom.set_xticks(places, labels, rotation=40, ha="right", rotation_mode="anchor")
    bottom.set_xlabel("tap, in execution order")
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Plot("growth-depth", "Growth along the depth", _depth_alt(points), figure)


def draw_positions(result: BisectResult) -> Plot | None:
    """Relative L2 of the residual stream over the positions, one curve a sequence; None where
    nothing differs."""
    tracks = by_sequence(result.positions)
    if not any(_drawn(point.relative_l2) for point in result.positions):
        return None
    figure, (axes,) = new_figure(3.2)
    several = len(tracks) > 1
    for index, sequence in enumerate(list(tracks)[:SEQUENCES]):
        places = [point.position for point in tracks[sequence]]
        values = [point.relative_l2 for point in tracks[sequence]]
        label = drawable(sequence) if several else "residual stream"
        _curve(axes, places, values, index, label)
        _edge_marks(axes, places, values)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_xlabel("position (token)")
    axes.set_ylabel("relative L2 (log)")
    axes.set_title("Growth along the positions")
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=3)
    hidden = len(tracks) - SEQUENCES
    more = f" {plural(hidden, 'further sequence')} not drawn." if hidden > 0 else ""
    largest = max(
        (p for p in result.positions if _drawn(p.relative_l2)), key=lambda p: p.relative_l2
    )
    alt = (
        f"Relative L2 over {plural(len(result.positions), 'position')}; largest "
        f"{measure(largest.relative_l2)} at position {largest.position}.{more}"
    )
    return Plot("growth-positions", "Growth along the positions", alt, figure)


def _kinds(result: BisectResult) -> list[str]:
    """The kinds of taps that get a curve: the outputs of the layers, then those that origins
    belong to; all other taps are dots."""
    points = result.growth
    outputs = [without_layer(p.tap) for p in points if is_residual(p.tap)]
    origins = {origin.tap for origin in result.origins}
    found = [without_layer(p.tap) for p in points if p.tap in origins and p.layer is not None]
    kinds = list(dict.fromkeys([*outputs, *found]))[:CURVES]
    return kinds or list(dict.fromkeys(without_layer(p.tap) for p in points))[:1]


def _relative(point: GrowthPoint) -> float | None:
    return point.relative_l2


def _ulps(point: GrowthPoint) -> float | None:
    return None if point.max_ulp is None else float(point.max_ulp)


def _drawn(value: float | None) -> TypeGuard[float]:
    """A log axis shows positive finite values only."""
    return value is not None and math.isfinite(value) and value > 0


def _dots(axes: Axes, x: Sequence[int], values: Sequence[float | None]) -> None:
    pairs = [(place, value) for place, value in zip(x, values, strict=True) if _drawn(value)]
    if pairs:
        axes.set_yscale("log")
        axes.plot(
            [place for place, _ in pairs], [value for _, value in pairs], linestyle="",
            marker=".", markersize=3.5, color=GREY, alpha=0.7, label="other taps",
        )  # fmt: skip


def _curve(
    axes: Axes, x: Sequence[int], values: Sequence[float | None], index: int, label: str = ""
) -> None:
    marker = "" if len(values) > DENSE else MARKERS[index % len(MARKERS)]
    drawn = [value if _drawn(value) else math.nan for value in values]
    if any(map(_drawn, values)):
        axes.set_yscale("log")
        axes.plot(x, drawn, marker=marker, markersize=3.5, label=label, **series_style(index))


def _edge_marks(axes: Axes, x: Sequence[int], values: Sequence[float | None]) -> None:
    """What a log axis cannot show: equality at the lower edge, NaN and infinity at the upper."""
    pairs = [(p, v) for p, v in zip(x, values, strict=True) if v is not None]
    equal = [p for p, v in pairs if v == 0]
    wild = [p for p, v in pairs if not math.isfinite(v)]
    for places, height, marker, name in (
        (equal, 0.0, "|", "bitwise equal"),
        (wild, 1.0, "^", "NaN or infinite"),
    ):
        if places:
            axes.plot(
                places, [height] * len(places), transform=axes.get_xaxis_transform(), linestyle="",
                marker=marker, markersize=6, color=INK, clip_on=False, zorder=5, label=name,
            )  # fmt: skip


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
    first, largest = drawn[0], max(drawn, key=lambda point: point.relative_l2)
    return (
        f"Relative L2 over {plural(len(points), 'tap')} in execution order: "
        f"{measure(first.relative_l2)} at {printable(first.tap)}, the first that differs; "
        f"largest {measure(largest.relative_l2)} at {printable(largest.tap)}."
    )
