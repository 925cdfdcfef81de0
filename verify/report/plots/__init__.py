"""Figures of a result as PNG, SVG or PDF. matplotlib is imported here and nowhere else."""

from verify.report.plots.catalogue import FORMATS, draw_plots
from verify.report.plots.files import inline_svg, write_plots

__all__ = ["FORMATS", "draw_plots", "inline_svg", "write_plots"]
