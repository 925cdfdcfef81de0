"""`verify compare`: every tap of two dumps, row by row."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from verify.cli.executors import ExecutorOption, SchedulerOption, WorkersOption
from verify.cli.import_run import say_imported


def compare(
    a: Annotated[str, typer.Argument(help="Run A.", metavar="A", show_default=False)],
    b: Annotated[str, typer.Argument(help="Run B.", metavar="B", show_default=False)],
    tap: Annotated[
        list[str] | None, typer.Option("--tap", help="Glob on tap names, repeatable.")
    ] = None,
    tap_map: Annotated[
        str | None,
        typer.Option("--map", help="Tap map that relates B's taps to A's: a name or a file."),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option("--layout", help="GLOB=replicated|partial|shard:D over ranks, repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List equal taps one by one.")] = False,
    executor: ExecutorOption = "serial",
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Compare two dumps tap by tap: bits, largest difference, relative L2, ULPs, first row.

    Exit code 0: all equal; 1: something differs; 3: nothing differs, but something was not
    compared; 2: a dump cannot be read.
    """
    from verify.compare import exit_codes
    from verify.compare.executor import open_executor
    from verify.compare.run import compare as compare_dumps
    from verify.dumps.layout import parse_layouts
    from verify.taps.open import open_mapped

    pair = open_mapped(a, b, tap_map, parse_layouts(layout or []), say_imported)
    with open_executor(executor, workers, scheduler) as pool:
        result = compare_dumps(*pair, tuple(tap or ()), pool)
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal import render_comparison

        render_comparison(result, Console(), every=every)
    raise typer.Exit(exit_codes.of_comparison(result))
