"""`verify noise`: how far one configuration repeats itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from verify.errors import ArgumentError

if TYPE_CHECKING:
    from verify.noise.result import NoiseResult


def noise(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Recorded repeats; or, behind --, the options of verify capture.",
            metavar="RUN... | -- CAPTURE OPTIONS",
            show_default=False,
        ),
    ],
    runs: Annotated[int, typer.Option("--runs", help="Captures of the same configuration.")] = 5,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", help="threads=1,2 (batch, prefill-chunk, attn), repeatable."),
    ] = None,
    level: Annotated[
        str, typer.Option("--level", help="Of the captures: digest tells equality and size.")
    ] = "digest",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder for the captures.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Record one configuration in fresh processes, or take runs that are there, and measure how
    they differ: per-tap noise floor, flip rates, and what the number of runs can say.

    Exit code 0: every repeat is equal in every bit; 1: not; 2: usage; 3: these are no repeats.
    """
    result = (
        _recorded(what, out) if Path(what[0]).is_dir() else _captured(what, runs, vary, level, out)
    )
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal.noise import render_noise

        render_noise(result, Console())
    raise typer.Exit(result.exit_code)


def _recorded(what: list[str], out: Path | None) -> NoiseResult:
    from verify.dumps.format import open_dump
    from verify.noise.measure import REPEATS, measure

    first, *others = [open_dump(Path(run)) for run in what]
    result = measure(first, {REPEATS: others}, ["verify", *sys.argv[1:]])
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _keep(result, out)
    return result


def _captured(
    what: list[str], runs: int, vary: list[str] | None, level: str, out: Path | None
) -> NoiseResult:
    from verify.dumps.format import open_dump
    from verify.noise.measure import REPEATS, measure
    from verify.noise.repeat import capture_all, plan

    if not what[0].startswith("-"):
        raise ArgumentError(
            "neither a recorded run nor an option of verify capture",
            where=what[0],
            hint="verify noise RUN RUN ..., or verify noise --runs 5 --out FOLDER -- -p TEXT",
        )
    if out is None:
        raise ArgumentError("the repeats need a place", where="--out", hint="--out FOLDER")
    console = Console(stderr=True)
    planned = plan(what, runs, vary or [], level)
    done = capture_all(planned, out, lambda text: console.print(text, style="dim", markup=False))
    dumps = {group: [open_dump(path) for path in paths] for group, paths in done.items()}
    first, *repeats = dumps[REPEATS]
    result = measure(first, {**dumps, REPEATS: repeats}, ["verify", *sys.argv[1:]])
    _keep(result, out)
    return result


def _keep(result: NoiseResult, out: Path) -> None:
    from verify.noise.store import NAME
    from verify.report.json import to_json
    from verify.report.place import write_file

    write_file(out / NAME, to_json(result))
