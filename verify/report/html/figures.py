"""Figures in the page: drawn once, as SVG that follows the theme, with their words beside them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from verify.bisect.result import BisectResult, Heatmap
from verify.report.grouping import Stage, by_stage, severity
from verify.report.html.markup import Child, Markup, tag
from verify.report.html.tables import Column, code, folded, scrollable, table
from verify.report.names import printable
from verify.report.numbers import measure, plural, share, ulps

READOUT_CELLS = 300_000
"""Cells whose values are put into the page for reading under the pointer; about 2 MB of text."""

_DEPTH: tuple[Column, ...] = (
    ("Stage", False),
    ("Taps", True),
    ("First that differs", False),
    ("Largest relative L2", True),
    ("At", False),
    ("Max ULP there", True),
    ("Elements that differ there", True),
)
_MAP: tuple[Column, ...] = (
    ("Tap", False),
    ("Cells compared", True),
    ("Cells that differ", True),
    ("First at position", True),
    ("Largest", True),
    ("At position", True),
)


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure that is ready for the page."""

    name: str
    title: str
    alt: str
    svg: str
    frame: tuple[float, float, float, float] | None = None
    """Left, top, width and height of the axes as shares of the picture; for heatmaps."""


def figure(found: PageFigure, note: str = "", extra: Child = None) -> Markup:
    """The picture with its caption. Its words stand in for it where it cannot be seen."""
    svg = found.svg.replace("<svg ", f'<svg role="img" aria-labelledby="{found.name}-alt" ', 1)
    picture = tag("div", Markup(svg), extra, class_="picture")
    return tag(
        "figure",
        scrollable(picture, found.title),
        tag("figcaption", tag("strong", found.title), ". ", note),
        tag("p", found.alt, id=f"{found.name}-alt", class_="unseen"),
        id=f"figure-{found.name}",
    )


def cell_count(heatmap: Heatmap) -> int:
    return len(heatmap.taps) * len(heatmap.positions)


def heatmap_figure(found: PageFigure, heatmap: Heatmap, readable: bool) -> Markup:
    """A heatmap; a readable one tells the values of its cells under the pointer and with the arrow
    keys."""
    note = "Every cell is one row of one tap."
    if found.frame is None or not readable:
        return figure(found, note)
    frame = " ".join(f"{part:.5f}" for part in found.frame)
    target = tag(
        "div",
        tag("div", class_="cell", hidden=True),
        class_="cells",
        data_frame=frame,
        data_values=f"{found.name}-values",
        data_output=f"{found.name}-output",
        tabindex=0,
        role="application",
        aria_label=f"Values of the cells of {found.title}; move with the arrow keys",
        hidden=True,
    )
    output = tag(
        "output",
        "Point at a cell, or focus the map and use the arrow keys, to read its value.",
        id=f"{found.name}-output",
        class_="readout",
        hidden=True,
    )
    data = Markup(
        f'<script type="application/json" id="{found.name}-values">{_values(heatmap)}</script>'
    )
    return Markup(figure(found, note, target) + output + data)


def _values(heatmap: Heatmap) -> str:
    """The cells as text of three digits, safe inside a script element."""
    payload = {
        "taps": [printable(tap) for tap in heatmap.taps],
        "positions": heatmap.positions,
        "values": [[_cell(value) for value in line] for line in heatmap.values],
    }
    text = json.dumps(payload, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cell(value: float | None) -> float | str | None:
    if value is None or value == 0.0:
        return None if value is None else 0
    return float(f"{value:.3g}") if math.isfinite(value) else measure(value)


def heatmap_table(heatmap: Heatmap) -> Markup:
    """The heatmap line by line, for readers who do not see it."""
    rows = [
        _line(tap, heatmap.positions, values)
        for tap, values in zip(heatmap.taps, heatmap.values, strict=True)
    ]
    title = f"Heatmap as a table, {plural(len(rows), 'tap')}"
    name = f", sequence {heatmap.sequence}" if heatmap.sequence else ""
    return folded(title, table(f"Relative L2 by tap over the positions{name}", _MAP, rows))


def _line(tap: str, positions: list[int], values: list[float | None]) -> list[Child]:
    cells = [(p, v) for p, v in zip(positions, values, strict=True) if v is not None]
    differing = [(p, v) for p, v in cells if v != 0]
    if not differing:
        return [code(tap), str(len(cells)), "0", "-", "0" if cells else "-", "-"]
    top = max(differing, key=lambda cell: severity(cell[1]))
    return [
        code(tap), str(len(cells)), str(len(differing)), str(differing[0][0]), measure(top[1]),
        str(top[0]),
    ]  # fmt: skip


def depth_table(result: BisectResult) -> Markup | None:
    if not result.growth:
        return None
    rows = [_stage(stage) for stage in by_stage(result.growth)]
    title = f"Growth along the depth as a table, {plural(len(rows), 'stage')}"
    return folded(title, table("Size of the difference along the depth of the model", _DEPTH, rows))


def _stage(stage: Stage) -> list[Child]:
    first, top = stage.first_difference, stage.largest
    name = code(top.tap) if stage.layer is None else f"layer {stage.layer}"
    return [
        name, str(len(stage.points)), code(first.tap) if first else "-", measure(top.relative_l2),
        code(top.tap) if first else "-", ulps(top.max_ulp), share(top.differing_share, 1.0),
    ]  # fmt: skip
