"""One look for every figure: colours that colour-blind readers tell apart, in a fixed order.

Colours are those of Okabe and Ito, "Color Universal Design" (jfly.uni-koeln.de/color), without the
yellow that vanishes on white; every series has a marker or a dash of its own as well. The map for
magnitudes is viridis (Smith and van der Walt, bids.github.io/colormap), whose lightness rises
evenly for colour-blind readers too, cut below its lightest end so that "bitwise equal" can be
lighter than every difference, also in grey.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from verify.report.names import shorten

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#5b6470",
)
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 2)))

INK = "#1f2329"
"""Text and axes. The page replaces these three colours by those of its light or dark theme."""
FAINT = "#d3d8de"
"""Grid lines."""
PAPER = "#fefefe"
"""The background."""

HATCH = "#939daa"
"""Lines over what was not compared; seen on light and dark paper."""

EQUAL = "#e9edf1"
"""A bitwise equal cell."""
NOT_FINITE = VERMILION
"""NaN or infinity."""

WIDTH = 7.6
"""Inches; the text is set for this width."""

_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "hatch.color": HATCH,
    "hatch.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
    "figure.dpi": 100,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A finished figure with the words that stand for it."""

    name: str
    """File name without its ending."""
    title: str
    alt: str
    """What the figure shows, for readers who cannot see it."""
    figure: Figure


@contextmanager
def styled() -> Iterator[None]:
    """Draw or save within this context: nothing global is changed for good."""
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; the page has it as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of the common width with its axes in reading order. Height in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, [axes for line in grid for axes in line]


def magnitude_map() -> Colormap:
    """Dark (small) to light green (large); never as light as EQUAL."""
    colours = matplotlib.colormaps["viridis"](range(226))
    return ListedColormap(colours, name="magnitude")


def series_style(index: int) -> dict[str, Any]:
    """Colour and dash of the series with this number."""
    return {"color": CYCLE[index % len(CYCLE)], "linestyle": DASHES[index % len(DASHES)]}


def ulp_label(value: float) -> str:
    """A power of two as an integer while that is short."""
    return f"{value:.0f}" if value < 1024 else f"$2^{{{math.log2(value):.0f}}}$"


def drawable(text: str, width: int = 28) -> str:
    """Text from a dump for a figure: printable, short, and never read as a formula."""
    return escape_math(shorten([text], width)[text])


def escape_math(text: str) -> str:
    return text.replace("$", r"\$")
