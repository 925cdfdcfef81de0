"""One self-contained page: report.html, with report.json and the figures beside it."""

from verify.report.html.page import render_page
from verify.report.html.write import write_report

__all__ = ["render_page", "write_report"]
