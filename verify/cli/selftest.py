"""`verify selftest`: faults planted into a model, and whether the tool finds them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from verify.selftest.result import Trial


def selftest(
    model: Annotated[
        str, typer.Option("--model", "-m", help="toy, or as for capture --model.")
    ] = "toy",
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Kind of fault (K04 ...), repeatable; none: no faults."),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", help="gross, moderate or tiny, repeatable.")
    ] = None,
    innocents: Annotated[int, typer.Option("--innocents", help="Innocent pairs to try.")] = 0,
    sample: Annotated[
        int | None, typer.Option("--sample", help="Try only so many faults, drawn from all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Draws places and parameters.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Keep trials here; those that it holds are not repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Plant faults of every kind into a real model, and innocent variants, and judge them blind.

    Exit code 0: every demand on the rates is met; 1: one is not; 2: usage.
    """
    from verify.selftest.run import selftest as run_selftest

    console = Console(stderr=True)

    def told(done: int, total: int, trial: Trial) -> None:
        end = "\r" if console.is_terminal and done < total else "\n"
        text = f"{done} of {total}: {trial.kind} {trial.name} {trial.size} {trial.verdict}"
        if console.is_terminal or trial.error or done == total or done % 50 == 0:
            console.print(text[:79].ljust(79), end=end, style="dim", highlight=False, markup=False)

    result = run_selftest(
        model,
        kinds=kind or [],
        sizes=size or [],
        innocents=innocents,
        seed=seed,
        sample=sample,
        out=out,
        progress=told,
    )
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal.selftest import render_selftest

        render_selftest(result, Console())
    raise typer.Exit(result.exit_code)
