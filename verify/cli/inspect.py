"""`verify inspect`: what is in a dump, and the numbers of its tensors."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer
from rich.console import Console

from verify.cli.import_run import say_imported

SHOWN = 20
"""Records whose numbers a terminal shows; --json shows them all."""


def inspect(
    run: Annotated[
        str,
        typer.Argument(
            help="Folder or URL of a dump, or a dump of another tool.", show_default=False
        ),
    ],
    tap: Annotated[
        str | None, typer.Option("--tap", help="Print the numbers of taps that match this glob.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Print the numbers of this step only.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read every tensor against its checksum.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a dump holds: completeness, sizes, sequences, steps, taps, or its numbers."""
    from verify.dumps.importers.opening import open_run
    from verify.dumps.overview import overview, verify_words
    from verify.dumps.tensor_numbers import numbers, select
    from verify.report.inspect_text import render_numbers, render_overview
    from verify.report.json import to_json

    dump = open_run(run, say_imported)
    console = Console(highlight=False)
    if tap is None and step is None:
        view = overview(dump, check=check)
        typer.echo(to_json(view), nl=False) if as_json else render_overview(view, console)
        return
    if check:
        verify_words(dump)
    records = select(dump, tap, step)
    found = (numbers(dump, record) for record in records)
    if as_json:
        typer.echo(b"[" + b",\n".join(to_json(each).rstrip() for each in found) + b"]")
        return
    left_out = max(0, len(records) - SHOWN)
    render_numbers(islice(found, SHOWN), console, left_out=left_out)
