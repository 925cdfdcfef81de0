"""The report as files."""

from __future__ import annotations

from pathlib import Path

from verify.bisect.result import BisectResult
from verify.report.html.figures import PageFigure
from verify.report.html.page import render_page
from verify.report.json import to_json
from verify.report.place import prepare, write_file
from verify.report.plots import axes_frame, checked_formats, draw_plots, inline_svg, save_plot


def write_report(
    result: BisectResult, directory: str | Path, formats: tuple[str, ...] = ("png",)
) -> Path:
    """Write report.html, report.json and the figures; give back the path of report.html.

    Args:
        directory: new, empty, or holding an earlier report of this package, which is replaced.
        formats: of the figure files (png, svg, pdf); the page has its own copies inside.

    Raises:
        ArgumentError: an unknown figure format.
        UsageError: the directory holds something else.
        StorageError: the disk did not take a file.
    """
    wanted = checked_formats(formats)
    target = prepare(directory)
    write_file(target / "report.json", to_json(result))  # first: it marks the directory as ours
    figures = []
    for plot in draw_plots(result):
        save_plot(plot, target, wanted)
        frame = axes_frame(plot) if plot.name.startswith("heatmap") else None
        figures.append(PageFigure(plot.name, plot.title, plot.alt, inline_svg(plot), frame))
    page = target / "report.html"
    write_file(page, render_page(result, figures).encode())
    return page
