"""`verify recapture`: both runs once more, with full tensors around their split."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verify.dumps.sizes import parse_bytes


def recapture(
    a: Annotated[Path, typer.Argument(help="Run A, first pass.", metavar="A", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Run B, first pass.", metavar="B", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="New folder for both dumps and the report.")
    ],
    around: Annotated[
        list[str] | None,
        typer.Option(
            help="TAP@STEP (A's), TAP, @STEP, or jump; repeatable; default: the first split."
        ),
    ] = None,
    margin: Annotated[
        int, typer.Option(help="Recorded taps before and after the place; blocks are kept whole.")
    ] = 1,
    margin_steps: Annotated[int, typer.Option(help="Steps before and after the place.")] = 0,
    rows: Annotated[
        str | None, typer.Option(help="Only rows at these positions, for example 0:112.")
    ] = None,
    ops: Annotated[
        list[str] | None,
        typer.Option(
            help="Operations below modules, as for capture, repeatable; around: all in the window."
        ),
    ] = None,
    tap_map: Annotated[
        str | None,
        typer.Option("--map", help="Tap map: a shipped one or a file; of B all taps are recorded."),
    ] = None,
    edges: Annotated[str, typer.Option(help="trace or identity.")] = "trace",
    byte_budget: Annotated[
        str | None, typer.Option(help="Bytes that each dump may take, for example 500M or 2G.")
    ] = None,
    command_a: Annotated[
        str | None, typer.Option(help="Command that runs A; default: the one in its manifest.")
    ] = None,
    command_b: Annotated[str | None, typer.Option(help="Command that runs B.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", help="A verdict that does not fail the run, repeatable."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay", help="Also replay both windows, as bisect --replay does: what each op adds."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    bisect_exit: Annotated[
        bool, typer.Option("--bisect-exit", help="Exit codes for `git bisect run`: 2, 3 -> 125.")
    ] = False,
) -> None:
    """Find the split in two dumps of digests, run both again with full tensors there, and bisect
    those. Exit codes are those of bisect; a run that does not repeat its first pass gives 1."""
    from verify.bisect.verdict import parse_accept
    from verify.cli.bisect import check_map, replayed
    from verify.compare import exit_codes
    from verify.dumps.format import open_dump
    from verify.env import command_line
    from verify.errors import VerifyError
    from verify.recapture.run import Plan
    from verify.recapture.run import recapture as run
    from verify.report.html import write_report
    from verify.report.json import to_json
    from verify.report.place import write_file
    from verify.report.terminal.recapture import render_recaptured

    messages = Console(stderr=True)
    try:
        check_map(tap_map, replay)
        plan = Plan(
            around=tuple(around or ()),
            margin=margin,
            margin_steps=margin_steps,
            ops=tuple(ops or ()),
            rows=rows,
            edges=edges,
            tap_map=tap_map,
            byte_budget=None if byte_budget is None else parse_bytes(byte_budget, "--byte-budget"),
            command_a=command_a,
            command_b=command_b,
        )
        found = run(
            open_dump(a),
            open_dump(b),
            out,
            plan,
            accept=parse_accept(accept or []),
            command=command_line(),
            check=lambda x, y: [replayed(x, y, None, None)] if replay else [],
            say=lambda what: messages.print(what, style="dim", highlight=False),
        )
        page = write_report(found.result, out / "report")
        write_file(out / "recapture.json", to_json(found))
    except VerifyError as error:
        if bisect_exit:
            error.exit_code = exit_codes.CANNOT_TEST
        raise
    if json:
        sys.stdout.buffer.write(to_json(found))
    else:
        render_recaptured(found, Console())
        Console().print(f"report: {page}", highlight=False, soft_wrap=True)
    code = found.result.exit_code
    raise typer.Exit(exit_codes.for_git_bisect(code) if bisect_exit else code)
