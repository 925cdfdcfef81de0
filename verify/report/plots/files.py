"""Figures written to disk, and as text that stands inside a page."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib

from verify.bisect.result import BisectResult
from verify.compare.result import Comparison
from verify.errors import ArgumentError, StorageError
from verify.report.place import prepare
from verify.report.plots.catalogue import FORMATS, draw_plots
from verify.report.plots.style import FAINT, INK, PAPER, Plot, styled

DOTS_PER_INCH = 160
# Files carry no date, so that equal results give equal files.
_METADATA = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_THEME = {INK: "var(--ink)", FAINT: "var(--faint)", PAPER: "none"}


def write_plots(
    result: BisectResult | Comparison, directory: str | Path, formats: Iterable[str] = ("png",)
) -> list[Path]:
    """Write every figure of ``result`` in each of ``formats`` (png, svg, pdf).

    Args:
        directory: new, empty, or holding an earlier report or earlier figures of this package.

    Raises:
        ArgumentError: a format that is not known.
        UsageError: the directory holds something else.
        StorageError: the disk did not take a file.
    """
    wanted = _checked(formats)
    target = prepare(directory)
    written: list[Path] = []
    for plot in draw_plots(result):
        written += [_save(plot, target / f"{plot.name}.{ending}", ending) for ending in wanted]
    return written


def inline_svg(plot: Plot) -> str:
    """The figure as an ``<svg>`` element: real text, colours that follow the page's theme, ids
    that do not clash with another figure's."""
    buffer = io.StringIO()
    with styled(), matplotlib.rc_context({"svg.hashsalt": plot.name, "svg.id": plot.name}):
        plot.figure.savefig(buffer, format="svg", metadata=_METADATA["svg"])
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    for colour, variable in _THEME.items():
        text = text.replace(colour, variable)
    return text


def _checked(formats: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in FORMATS:
            raise ArgumentError(
                "unknown figure format", where="formats", found=name, allowed=", ".join(FORMATS)
            )
    return wanted


def _save(plot: Plot, path: Path, ending: str) -> Path:
    """Written beside its place and renamed: a killed run leaves no half a figure."""
    partial = path.with_name(f".{path.name}.tmp")
    try:
        with styled(), matplotlib.rc_context({"svg.hashsalt": plot.name}):
            plot.figure.savefig(
                partial, format=ending, dpi=DOTS_PER_INCH, metadata=_METADATA[ending]
            )
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError("a figure cannot be written", where=path, found=error) from error
    return path
