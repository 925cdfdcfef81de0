"""Layer by position: where the difference is, and how it spreads."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from verify.bisect.result import Heatmap
from verify.report.numbers import measure, plural
from verify.report.plots.choose import label_taps
from verify.report.plots.style import (
    EQUAL,
    HATCH,
    INK,
    NOT_FINITE,
    Plot,
    drawable,
    magnitude_map,
    new_figure,
)

NAME_WIDTH = 26
LINES_LABELLED = 32
POSITIONS_LABELLED = 12


def draw_heatmap(heatmap: Heatmap, name: str = "heatmap") -> Plot | None:
    """Relative L2 in every (tap, position) cell; None for a map without cells."""
    if not heatmap.taps or not heatmap.positions:
        return None
    grid = np.array(
        [[math.nan if v is None else v for v in line] for line in heatmap.values], np.float64
    )
    missing = np.array([[v is None for v in line] for line in heatmap.values], bool)
    lines = len(heatmap.taps)
    figure, (axes,) = new_figure(1.9 + 0.145 * max(6, min(lines, LINES_LABELLED)))
    axes.add_patch(_hatched(lines, len(heatmap.positions)))
    _flat(axes, grid == 0.0, EQUAL)
    _flat(axes, ~np.isfinite(grid) & ~missing, NOT_FINITE)
    _magnitudes(figure, axes, grid)
    _label(axes, heatmap)
    _legend(figure, grid, missing)
    return Plot(name, _title(heatmap), _alt(heatmap, grid, missing), figure)


def _hatched(lines: int, columns: int) -> Patch:
    """Lies under the cells: what stays visible was not compared."""
    return Rectangle(
        (-0.5, -0.5), columns, lines, facecolor="none", edgecolor=HATCH, hatch="////", linewidth=0,
        zorder=-1,
    )  # fmt: skip


def _flat(axes: Axes, mask: NDArray[np.bool_], colour: str) -> None:
    """Cells of one meaning in one colour."""
    if mask.any():
        pixels = np.zeros((*mask.shape, 4))
        pixels[mask] = to_rgba(colour)
        axes.imshow(pixels, aspect="auto", interpolation="nearest")


def _magnitudes(figure: Figure, axes: Axes, grid: NDArray[np.float64]) -> None:
    shown = np.ma.masked_where(~(np.isfinite(grid) & (grid > 0)), grid)
    if not shown.count():
        axes.set_xlim(-0.5, grid.shape[1] - 0.5)
        axes.set_ylim(grid.shape[0] - 0.5, -0.5)
        return
    low, high = float(shown.min()), float(shown.max())
    if low == high:
        low, high = low / 2, high * 2
    image = axes.imshow(
        shown,
        aspect="auto",
        interpolation="nearest",
        norm=LogNorm(low, high),
        cmap=magnitude_map(),
    )
    bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=30)
    bar.set_label("relative L2, ‖b − a‖ / ‖a‖ (log)")


def _label(axes: Axes, heatmap: Heatmap) -> None:
    axes.grid(visible=False)
    axes.set_yticks(*label_taps(heatmap.taps, LINES_LABELLED, NAME_WIDTH))
    axes.xaxis.set_major_locator(MaxNLocator(POSITIONS_LABELLED, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(partial(_position, heatmap.positions)))
    axes.set_xlabel("position (token)")
    axes.set_title(_title(heatmap))


def _position(positions: list[int], column: float, _place: int | None = None) -> str:
    index = round(column)
    return str(positions[index]) if 0 <= index < len(positions) else ""


def _title(heatmap: Heatmap) -> str:
    name = f", sequence {drawable(heatmap.sequence)}" if heatmap.sequence else ""
    return f"Difference by tap and position{name}"


def _legend(figure: Figure, grid: NDArray[np.float64], missing: NDArray[np.bool_]) -> None:
    """Only what occurs, so that a reader does not look for cells that are not there."""
    entries = []
    if (grid == 0.0).any():
        entries.append(Patch(facecolor=EQUAL, edgecolor=INK, linewidth=0.5, label="bitwise equal"))
    if missing.any():
        entries.append(Patch(facecolor="none", edgecolor=HATCH, hatch="////", label="not compared"))
    if (~np.isfinite(grid) & ~missing).any():
        entries.append(Patch(facecolor=NOT_FINITE, label="NaN or infinite"))
    if entries:
        figure.legend(handles=entries, loc="outside lower center", ncols=len(entries))


def _alt(heatmap: Heatmap, grid: NDArray[np.float64], missing: NDArray[np.bool_]) -> str:
    shown = grid[np.isfinite(grid) & (grid > 0)]
    size = f", from {measure(shown.min())} to {measure(shown.max())}" if shown.size else ""
    return (
        f"Relative L2 of {plural(len(heatmap.taps), 'tap')} at "
        f"{plural(len(heatmap.positions), 'position')}: {plural(int((grid == 0).sum()), 'cell')} "
        f"bitwise equal, {plural(int(shown.size), 'cell')} different{size}, "
        f"{plural(int(missing.sum()), 'cell')} not compared."
    )
