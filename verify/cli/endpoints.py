"""``verify endpoints SPEC``: compare implementations bit by bit on declared cases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def endpoints(
    spec: Annotated[
        str, typer.Argument(help="A Python file with SPEC, or module:object.", show_default=False)
    ],
    cases: Annotated[
        str, typer.Option("--cases", help="Only cases whose name holds this text.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="New or empty folder for endpoints.json, the page and its figures."
        ),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Also time each pair: ABBA, median ratio, interval.")
    ] = False,
    pairs: Annotated[int, typer.Option("--pairs", min=5, help="Pairs of --speed.")] = 100,
    sass: Annotated[
        bool, typer.Option("--sass", help="Also compare the machine code of the builds that ran.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Compare two or more implementations of one operation.

    Exit code 0: equal bits, or every difference is explained by a certificate of either side;
    1: bits differ or a check failed; 2: the spec cannot be loaded or selects no case; 3: nothing
    differs, but a check could not be run here.
    """
    from verify.endpoints import compare_endpoints, load_spec
    from verify.env import command_line
    from verify.report.place import check

    if out is not None:
        check(out)  # before the work, which may take minutes
    progress = Console(stderr=True)
    result = compare_endpoints(
        load_spec(spec),
        cases=cases,
        speed=pairs if speed else 0,
        sass=sass,
        name=spec,
        command=command_line(),
        progress=lambda what: progress.print(what, style="dim", highlight=False, markup=False),
    )
    if out is not None:
        from verify.report.html.endpoints import write_endpoints

        write_endpoints(result, out)
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal.endpoints import render_endpoints

        render_endpoints(result, Console())
    raise typer.Exit(result.exit_code)
