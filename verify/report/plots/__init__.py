"""Figures of a result as PNG, SVG or PDF. matplotlib is imported here and nowhere else."""

from verify.report.plots.catalogue import FORMATS, draw_plots
from verify.report.plots.files import (
    axes_frame,
    checked_formats,
    inline_svg,
    save_plot,
    write_plots,
)

__all__ = [
    "FORMATS",
    "axes_frame",
    "checked_formats",
    "draw_plots",
    "inline_svg",
    "save_plot",
    "write_plots",
]
