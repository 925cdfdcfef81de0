"""`verify swap`: which exchange of tensors moves the output of one run to that of the other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from verify.errors import ArgumentError


def swap(
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
        list[str] | None, typer.Option("--tap", help="Glob on taps to exchange, repeatable.")
    ] = None,
    position: Annotated[
        int | None, typer.Option("--position", help="Of the logits; default: the first flip.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Run one step, from recorded keys and values.")
    ] = False,
    goal: Annotated[
        str, typer.Option("--goal", help="output: token and logits move across; token: it alone.")
    ] = "output",
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="layer, aspect or both: exchange attention and cache, not tensors.",
        ),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Also try every member alone.")] = False,
    most: Annotated[int, typer.Option("--most", help="Members that a set may have.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Find a smallest set of taps, or of parts of the implementation, that, taken from A, moves B's
    output to A's; then the reverse.

    Exit code 0: found and confirmed in reverse; 1: not; 2: usage or broken input; 3: these runs
    cannot be swapped.
    """
    from verify.dumps.format import open_dump
    from verify.env import command_line
    from verify.replay.load import load_models
    from verify.replay.refuse import check_dumps, check_globs
    from verify.swap.implementations import swap_implementations
    from verify.swap.parts import parse_by
    from verify.swap.run import swap as swap_dumps

    ways = None if by is None else parse_by(by)
    if ways is not None and (tap or alone):
        raise ArgumentError(
            "parts of the implementation are no taps",
            where="--by",
            found="--tap or --alone beside it",
            hint="leave one of them out",
        )
    if goal not in ("output", "token") or most < 1:
        raise ArgumentError(
            "no such goal or size", where="--goal, --most", found=f"{goal}, {most}",
            allowed="output or token; 1 or more",
        )  # fmt: skip
    first, second = open_dump(a), open_dump(b)
    check_dumps(first, second)
    check_globs(first, second, tap or [])
    console = Console(stderr=True)
    models = load_models(first, second, model_a, model_b)
    shared: dict[str, Any] = {
        "position": position,
        "most": most,
        "goal": goal,
        "each": each,
        "progress": lambda what: console.print(what, style="dim", highlight=False),
        "command": command_line(),
    }
    if ways is None:
        result = swap_dumps(first, second, models, taps=tap or [], alone=alone, **shared)
    else:
        result = swap_implementations(first, second, models, by=ways, **shared)
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal.swap import render_swap

        render_swap(result, Console())
    raise typer.Exit(result.exit_code)
