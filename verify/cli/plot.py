"""`verify plot`: the figures and the page of a bisect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def plot(
    a: Annotated[Path, typer.Argument(help="Run A.", metavar="A", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Run B.", metavar="B", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="New or empty folder, or one with an earlier report."),
    ] = Path("report"),
    format: Annotated[
        list[str] | None,
        typer.Option("--format", help="Of the figure files: png, svg or pdf; repeatable."),
    ] = None,
) -> None:
    """Bisect two runs and write the report: report.html, report.json and every figure.

    Exit code 0: the report is written, whatever it says (`verify bisect` judges); 2: a dump cannot
    be read, or the folder holds something else.
    """
    # The figures' library loads here: `verify --help` does without.
    from verify.bisect.run import bisect as bisect_dumps
    from verify.dumps.format import open_dump
    from verify.report.html import write_report
    from verify.report.place import check
    from verify.report.plots import checked_formats

    wanted = checked_formats(format or ["png"])
    check(out)  # before the work, which may take minutes
    result = bisect_dumps(open_dump(a), open_dump(b), command=["verify", *sys.argv[1:]])
    page = write_report(result, out, tuple(wanted))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{result.verdict}: {result.summary}", markup=False)
    for path in sorted(page.parent.iterdir()):
        console.print(f"  {path}", markup=False)
