"""Figures written to disk, and as text that stands inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison
from verify.errors import ArgumentError
from verify.report.place import prepare, write_file
from verify.report.plots.catalogue import FORMATS, draw_plots
from verify.report.plots.style import CYCLE, FAINT, INK, PAPER, Plot, styled

DOTS_PER_INCH = 160
# Files carry no date, so that equal results give equal files.
_METADATA = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_THEME = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    PAPER: "none",
    **{colour: f"var(--series-{i}, {colour})" for i, colour in enumerate(CYCLE, 1)},
}
"""Colours of a figure that the page sets for its light and dark themes."""


def write_plots(
    result: BisectResult | Comparison, directory: str | Path, formats: Iterable[str] = ("png",)
) -> list[Path]:
    """Write every figure of ``result`` in each of ``formats`` (png, svg, pdf).

    Args:
        directory: new, empty, or holding an earlier report of this package.

    Raises:
        ArgumentError: a format that is not known.
        UsageError: the directory holds something else.
        StorageError: the disk did not take a file.
    """
    wanted = checked_formats(formats)
    target = prepare(directory)
    return [path for plot in draw_plots(result) for path in save_plot(plot, target, wanted)]


def save_plot(plot: Plot, directory: Path, formats: Iterable[str]) -> list[Path]:
    """Write one figure in each of ``formats`` into an existing directory.

    Raises:
        StorageError: the disk did not take a file.
    """
    return [_save(plot, directory / f"{plot.name}.{ending}", ending) for ending in formats]


def axes_frame(plot: Plot) -> tuple[float, float, float, float]:
    """Left, top, width and height of the first axes as shares of a figure that was saved."""
    box = plot.figure.axes[0].get_position()
    return (float(box.x0), float(1 - box.y1), float(box.width), float(box.height))


def inline_svg(plot: Plot) -> str:
    """The figure as an ``<svg>`` element: real text, colours that follow the page's theme, ids
    that do not clash with another figure's."""
    buffer = io.StringIO()
    with styled(), matplotlib.rc_context({"svg.hashsalt": plot.name}):
        plot.figure.savefig(buffer, format="svg", metadata=_METADATA["svg"])
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same in every figure, and never referred to
    for colour, variable in _THEME.items():
        text = text.replace(colour, variable)
    return text


def checked_formats(formats: Iterable[str]) -> list[str]:
    """The formats, each once.

    Raises:
        ArgumentError: a format that is not known.
    """
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in FORMATS:
            raise ArgumentError(
                "unknown figure format", where="formats", found=name, allowed=", ".join(FORMATS)
            )
    return wanted


def _save(plot: Plot, path: Path, ending: str) -> Path:
    buffer = io.BytesIO()
    with styled(), matplotlib.rc_context({"svg.hashsalt": plot.name}):
        plot.figure.savefig(buffer, format=ending, dpi=DOTS_PER_INCH, metadata=_METADATA[ending])
    plot.figure.set_layout_engine("none")  # its places are settled; solving them takes a while
    write_file(path, buffer.getvalue())
    return path
