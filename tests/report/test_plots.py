"""Figures: which ones a result has, what their marks stand for, and the files that they become."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from tests.report.support.cases import CASES, HOSTILE
from tests.report.support.parts import comparison, equal_tap, heatmap, token, unequal_tap
from verify.bisect.result import BisectResult, GrowthPoint
from verify.compare.result import RelativeHistogram, TapComparison, UlpHistogram
from verify.errors import ArgumentError, UsageError
from verify.report.place import is_figure
from verify.report.plots import FORMATS, draw_plots, inline_svg, save_plot, write_plots
from verify.report.plots.choose import choose_taps, evenly, label_taps
from verify.report.plots.growth import draw_depth
from verify.report.plots.heatmap import draw_heatmap
from verify.report.plots.histograms import relative_shares, ulp_shares
from verify.report.plots.margins import draw_margins
from verify.report.plots.style import CYCLE, EQUAL, NOT_FINITE, magnitude_map, styled

DISTRIBUTIONS = ["ulp-distribution", "relative-distribution", "distribution-by-tap"]
GROWTH = ["growth-depth", "growth-positions"]
PRESENT = {
    "identical": ["token-margins", "heatmap"],
    "precision": ["token-margins", *GROWTH, "heatmap", *DISTRIBUTIONS],
    "unresolved": ["token-margins", *GROWTH, "heatmap", *DISTRIBUTIONS],
    "not_comparable": [],
    "partial": [],
    "empty": [],
    "hostile": [*GROWTH, "heatmap", *DISTRIBUTIONS],
}

_SHARES = {"share of elements in the bin (log)", "share of elements below"}
LABELS = {
    "token-margins": {"number of the generated token", "logit units (log)"},
    "growth-depth": {
        "tap, in execution order", "relative L2 (log)", "largest ULP distance (log)",
    },
    "growth-positions": {"position (token)", "relative L2 (log)"},
    "heatmap": {"position (token)", "relative L2, ‖b − a‖ / ‖a‖ (log)"},
    "ulp-distribution": {"distance in ULPs of the coarser dtype", *_SHARES},
    "relative-distribution": {"|b − a| / max(|a|, smallest normal), no unit", *_SHARES},
    "distribution-by-tap": {
        "tap, in execution order", "ULP distance", "relative error",
        "share of the tap's elements (log scale)",
    },
}  # fmt: skip
"""What every axis measures, and in which unit."""


@pytest.mark.parametrize("name", CASES)
def test_figures_of_a_result(name: str) -> None:
    plots = list(draw_plots(CASES[name]()))
    assert [plot.name for plot in plots] == PRESENT[name]
    for plot in plots:
        assert plot.alt.endswith((".", "equal")) and plot.title
        assert is_figure(Path(f"{plot.name}.png"))
        labels = {f() for a in plot.figure.axes for f in (a.get_xlabel, a.get_ylabel)} - {""}
        scale = {"relative L2, ‖b − a‖ / ‖a‖ (log)"} if name == "identical" else set()
        assert labels == LABELS[plot.name] - scale  # no scale where no cell differs


def test_a_comparison_has_distributions_only() -> None:
    plots = [plot.name for plot in draw_plots(CASES["precision"]().comparison)]
    assert plots == DISTRIBUTIONS


def test_figures_in_a_page_follow_its_theme() -> None:
    with styled():
        plot = draw_margins(CASES["unresolved"]())
    assert plot is not None
    text = inline_svg(plot)
    ET.fromstring(text)  # well-formed
    assert "var(--ink)" in text and "#1f2329" not in text
    assert ">logit units (log)</text>" in text  # text stays text: it can be searched and scales
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_a_dollar_sign_in_a_name_is_no_formula() -> None:
    taps = [unequal_tap(name, i, 1e-3) for i, name in enumerate((r"a.$\frac{$.out", "b.$x_1$.out"))]
    plot = next(draw_plots(comparison(taps)))
    text = inline_svg(plot)
    assert r"a.$\frac{$.out" in text and "b.$x_1$.out" in text


def test_files_are_reproducible_and_of_every_format(tmp_path: Path) -> None:
    first, again = (_margin_files(tmp_path) for _ in range(2))
    assert first == again
    starts = {suffix: content[:5] for suffix, content in first.items()}
    assert starts == {".png": b"\x89PNG\r", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def _margin_files(folder: Path) -> dict[str, bytes]:
    with styled():
        plot = draw_margins(CASES["unresolved"]())
    assert plot is not None
    return {path.suffix: path.read_bytes() for path in save_plot(plot, folder, FORMATS)}


def test_every_figure_is_written_once(tmp_path: Path) -> None:
    compared = comparison([unequal_tap("model.layers.0.out", 0, 1e-3)])
    written = write_plots(compared, tmp_path / "x", ("svg", "svg"))
    assert [path.name for path in written] == [f"{name}.svg" for name in DISTRIBUTIONS]
    assert sorted(tmp_path.glob("x/*")) == sorted(written)


def test_unknown_formats_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)unknown figure format.*png, svg, pdf"):
        write_plots(comparison([]), tmp_path / "x", ("gif",))
    assert not (tmp_path / "x").exists()
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(UsageError):
        write_plots(comparison([]), tmp_path)


def test_every_kind_of_heatmap_cell_has_its_own_look() -> None:
    cells = heatmap(2, 4, start=1, missing=1)
    cells.values[0][1], cells.values[1][2] = 1e-30, math.inf
    with styled():
        plot = draw_heatmap(cells)
    assert plot is not None
    equal, wild, sizes = (np.asarray(image.get_array()) for image in plot.figure.axes[0].images)
    assert [tuple(equal[i, 0]) for i in (0, 1)] == [to_rgba(EQUAL)] * 2
    assert (equal[..., 3] > 0).tolist() == [[True, False, False, False]] * 2
    assert tuple(wild[1, 2]) == to_rgba(NOT_FINITE)
    drawn = ~np.ma.getmaskarray(plot.figure.axes[0].images[2].get_array())
    assert drawn.tolist() == [[False, True, True, False], [False, True, False, False]]
    assert sizes[0, 1] == cells.values[0][1]
    hatched = [patch for patch in plot.figure.axes[0].patches if patch.get_hatch()]
    assert len(hatched) == 1  # under the cells: it shows where nothing was compared
    assert all(hatched[0].zorder < image.zorder for image in plot.figure.axes[0].images)
    assert hatched[0].get_alpha() is None
    labels = [text.get_text() for text in plot.figure.legends[0].get_texts()]
    assert labels == ["bitwise equal", "not compared", "NaN or infinite"]


def test_equality_is_lighter_than_every_difference() -> None:
    shades = [_lightness(magnitude_map()(i / 99)) for i in range(100)]
    assert shades == sorted(shades)  # rises evenly, so that it reads in grey as well
    # A step of 10 in L* is told apart at a glance in print; viridis uncut would leave 3.
    assert _lightness(to_rgba(EQUAL)) - shades[-1] > 10


def _lightness(rgba: tuple[float, ...]) -> float:
    """L* of CIE 1976 from sRGB (IEC 61966-2-1)."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgba[:3]]
    luminance = sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return float(116 * luminance ** (1 / 3) - 16)


def test_octaves_keep_every_element() -> None:
    tap = equal_tap("x", 0)
    edges = [0, *range(1, 17), 18, 20, 22, 24, 26, 28, 30, 32, 36]
    tap.ulps = UlpHistogram(edges=edges, counts=list(range(len(edges) - 1)), incomparable=7)
    found = ulp_shares(tap)
    assert found is not None
    total = sum(tap.ulps.counts) + 7
    assert found.edges == [1, 2, 4, 8, 16, 32, 64]
    wanted = [1, 2 + 3, 4 + 5 + 6 + 7, sum(range(8, 16)), sum(range(16, 24)), 24]
    assert found.shares == [count / total for count in wanted]
    assert (found.equal, found.outside) == (0.0, 7 / total)
    assert found.cumulative()[-1] + found.outside == pytest.approx(1)  # sums of eight terms


def test_relative_errors_are_placed_at_powers_of_ten() -> None:
    tap = equal_tap("x", 0)
    tap.elements = 10
    tap.relative = RelativeHistogram(edges=[-3.0, -2.0, -1.0], counts=[2, 3], equal=4)
    found = relative_shares(tap)
    assert found is not None
    assert found.edges == pytest.approx([1e-3, 1e-2, 1e-1])  # pow is not exact
    assert (found.shares, found.equal, found.outside) == ([0.2, 0.3], 0.4, 0.1)


@pytest.mark.parametrize("histogram", [None, UlpHistogram(edges=[0], counts=[])])
def test_taps_without_a_histogram_have_no_shares(histogram: UlpHistogram | None) -> None:
    tap = equal_tap("x", 0)
    tap.ulps, tap.relative = histogram, None
    assert ulp_shares(tap) is None and relative_shares(tap) is None


def test_the_curves_are_of_the_origins_and_of_both_ends() -> None:
    result = CASES["precision"]()
    names = [tap.tap for tap in choose_taps(result)]
    assert {origin.tap for origin in result.origins} <= set(names)
    assert names[-1] == "logits" and len(names) == 6


def test_token_ids_have_no_distribution() -> None:
    ids = unequal_tap("tokens.out", 0, 1.0)
    ids.dtype_a = ids.dtype_b = "int64"
    assert choose_taps(comparison([ids])) == []
    assert list(draw_plots(comparison([ids]))) == []


def test_ticks_name_every_tap_or_every_layer() -> None:
    taps = ["embed.out", *(f"layers.{i}.{p}" for i in range(3) for p in ("a", "b", "out")), "end"]
    assert label_taps(taps, 20, 30) == (list(range(11)), taps)
    places, labels = label_taps(taps, 6, 30)
    assert (places, labels) == ([1, 4, 7, 10], ["layer 0", "layer 1", "layer 2", "end"])
    assert evenly(100, 3) == [0, 50, 99]


def _growth(*sizes: float) -> BisectResult:
    result = CASES["empty"]()
    result.growth = [
        GrowthPoint(tap=f"layers.{i}.out", layer=i, order=i, relative_l2=size, max_ulp=None,
                    differing_share=0.5)
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    return result


def test_growth_marks_what_a_log_axis_cannot_show() -> None:
    with styled():
        plot = draw_depth(_growth(0.0, 1e-3, math.nan, math.inf, 1e-2))
    assert plot is not None
    lines = {line.get_label(): line for line in plot.figure.axes[0].lines}
    assert list(lines["bitwise equal"].get_xdata()) == [0]
    assert list(lines["NaN or infinite"].get_xdata()) == [2, 3]
    curve = np.asarray(lines["layers.*.out"].get_ydata(), float)
    assert np.isfinite(curve).tolist() == [False, True, False, False, True]


def test_growth_shows_the_unit_roundoff_of_the_dtype() -> None:
    with styled():
        plot = draw_depth(CASES["unresolved"]())
    assert plot is not None
    levels = [
        line.get_ydata()[0] for line in plot.figure.axes[0].lines if len(line.get_ydata()) == 2
    ]
    assert 2.0**-8 in levels  # bfloat16 has 8 significant bits


def test_nothing_to_draw_gives_no_figure() -> None:
    assert draw_depth(_growth(0.0, 0.0)) is None
    assert draw_depth(_growth()) is None
    assert draw_margins(CASES["empty"]()) is None


def test_margins_mark_ties_the_first_flip_and_the_texts_that_part() -> None:
    result = CASES["unresolved"]()
    result.tokens = [*result.tokens, token(5, 0.3, 0.2, 0.1, same_context=False)]
    with styled():
        plot = draw_margins(result)
    assert plot is not None
    axes = plot.figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["exact tie in B"].get_xdata()) == [4]
    assert "exact tie in A" not in lines
    assert [text.get_text() for text in axes.texts] == ["first differing token, 4"]
    assert [patch.get_label() for patch in axes.patches] == ["the tokens before differ"]
    assert "Token 4 is the first that differs." in plot.alt


def test_colours_are_distinct() -> None:
    assert len(set(CYCLE)) == len(CYCLE)


def test_hostile_titles_are_short() -> None:
    with styled():
        plot = draw_heatmap(CASES["hostile"]().heatmap[0])
    assert plot is not None and HOSTILE not in plot.title
    assert len(plot.title) < 80


def test_a_result_of_taps_without_histograms_is_drawn_without_distributions() -> None:
    taps: list[TapComparison] = [unequal_tap("model.layers.0.out", 0, 1e-3)]
    taps[0].ulps = taps[0].relative = None
    assert list(draw_plots(comparison(taps))) == []
