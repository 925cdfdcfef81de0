"""`verify plot`: the figures and the page of a bisect, or of an endpoint comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def plot(
    a: Annotated[
        Path,
        typer.Argument(
            help="Run A, or endpoints.json (or its folder).", metavar="A", show_default=False
        ),
    ],
    b: Annotated[
        Path | None, typer.Argument(help="Run B.", metavar="B", show_default=False)
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="New or empty folder, or one with an earlier report."),
    ] = Path("report"),
    format: Annotated[
        list[str] | None,
        typer.Option("--format", help="Of the figure files: png, svg or pdf; repeatable."),
    ] = None,
) -> None:
    """Bisect two runs and write the report: report.html, report.json and every figure. With the
    result of `verify endpoints` alone: its page and figures.

    Exit code 0: the report is written, whatever it says (`verify bisect` judges); 2: a dump cannot
    be read, or the folder holds something else.
    """
    # The figures' library loads here: `verify --help` does without.
    from verify.bisect.run import bisect as bisect_dumps
    from verify.dumps.format import open_dump
    from verify.env import command_line
    from verify.report.html import write_report
    from verify.report.place import check
    from verify.report.plots import checked_formats

    wanted = checked_formats(format or ["png"])
    check(out)  # before the work, which may take minutes
    if b is None:
        _plot_endpoints(a, out, tuple(wanted))
        return
    result = bisect_dumps(open_dump(a), open_dump(b), command=command_line())
    page = write_report(result, out, tuple(wanted))
    _list_files(f"{result.verdict}: {result.summary}", page)


def _plot_endpoints(path: Path, out: Path, formats: tuple[str, ...]) -> None:
    from verify.report.endpoints_words import headline
    from verify.report.html.endpoints import write_endpoints
    from verify.report.read_endpoints import read_endpoints

    result = read_endpoints(path)
    _list_files(headline(result), write_endpoints(result, out, formats))


def _list_files(said: str, page: Path) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(said, markup=False)
    for path in sorted(page.parent.iterdir()):
        console.print(f"  {path}", markup=False)
