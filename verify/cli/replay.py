"""`verify replay`: what each operation adds itself, and what it inherits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def replay(
    a: Annotated[Path, typer.Argument(help="Run A.", metavar="A", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Run B.", metavar="B", show_default=False)],
    model_a: Annotated[
        str | None,
        typer.Option("--model-a", help="Model of A, as for capture --model; default: as recorded."),
    ] = None,
    model_b: Annotated[
        str | None, typer.Option("--model-b", help="Model of B; default: that of A.")
    ] = None,
    tap: Annotated[
        list[str] | None, typer.Option("--tap", help="Glob on tap names, repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Run each side's model on the other run's recorded inputs: total = local + inherited.

    Exit code 0: every local part is zero or explained by rounding; 1: another one is not;
    2: usage or broken input; 3: these runs cannot be replayed.
    """
    from verify.dumps.format import open_dump
    from verify.env import command_line
    from verify.replay.load import load_models
    from verify.replay.refuse import check_dumps, check_globs
    from verify.replay.run import replay as replay_dumps

    first, second = open_dump(a), open_dump(b)
    check_dumps(first, second)
    check_globs(first, second, tap or [])
    console = Console(stderr=True)
    result = replay_dumps(
        first,
        second,
        load_models(first, second, model_a, model_b),
        taps=tap or [],
        progress=lambda what: console.print(what, style="dim", highlight=False),
        command=command_line(),
    )
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal.replay import render_replay

        render_replay(result, Console())
    raise typer.Exit(result.exit_code)
