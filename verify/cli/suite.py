"""`verify suite`: many prompts under two configurations, and what is the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def suite(
    path: Annotated[
        Path, typer.Argument(help="The suite's file.", metavar="SUITE.toml", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for dumps and results.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in --out; good streams are not repeated.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Record each split again in full, and bisect it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Record every prompt under A and under B, each in a fresh process, to its natural end, and
    compare the streams.

    Exit code 0: all identical, and nothing differs that is not declared; 1: not; 2: usage.
    """
    from verify.env import command_line
    from verify.report.json import to_json
    from verify.report.place import write_file
    from verify.suite.run import run_suite

    console = Console(stderr=True)
    result = run_suite(
        path,
        out,
        resume=resume,
        explain_splits=explain,
        say=lambda text: console.print(text, style="dim", markup=False, highlight=False),
        command=command_line(),
    )
    write_file(out / "suite.json", to_json(result))
    if json:
        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal.suite import render_suite

        render_suite(result, Console())
    raise typer.Exit(result.exit_code)
