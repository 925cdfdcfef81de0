"""Results on a terminal of 80 columns or more; nothing is said by colour alone."""

from verify.report.terminal.bisect import render_bisect
from verify.report.terminal.comparison import render_comparison

__all__ = ["render_bisect", "render_comparison"]
