"""`verify bisect`: where two runs part, why, and whether that can be rounding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from verify.errors import ArgumentError, VerifyError

if TYPE_CHECKING:
    from verify.bisect.result import BisectResult


def bisect(
    a: Annotated[Path, typer.Argument(help="Run A.", metavar="A", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Run B.", metavar="B", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for report.html and its figures.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", help="A verdict that does not fail the run, repeatable."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", help="tokens: a flipped token fails, even if explained."),
    ] = None,
    bisect_exit: Annotated[
        bool, typer.Option("--bisect-exit", help="Exit codes for `git bisect run`: 2, 3 -> 125.")
    ] = False,
) -> None:
    """Find the first difference of two runs in execution order, its origin, and a verdict.

    Exit code 0: identical, or every difference explained; 1: another difference; 3: no difference
    found, but something was not compared; 2: a dump cannot be read.
    """
    from verify.compare import exit_codes

    try:
        result = _bisect(a, b, accept or [], fail_on or [])
        written = _write(result, out)
    except VerifyError as error:
        if bisect_exit:
            error.exit_code = exit_codes.CANNOT_TEST
        raise
    if json:
        from verify.report.json import to_json

        sys.stdout.buffer.write(to_json(result))
    else:
        from verify.report.terminal import render_bisect

        render_bisect(result, Console())
        if written:
            Console().print(f"report: {written}", highlight=False, soft_wrap=True)
    code = exit_codes.for_git_bisect(result.exit_code) if bisect_exit else result.exit_code
    raise typer.Exit(code)


def _bisect(a: Path, b: Path, accept: list[str], fail_on: list[str]) -> BisectResult:
    from verify.bisect.run import bisect as bisect_dumps
    from verify.bisect.verdict import parse_accept
    from verify.dumps.format import open_dump

    if unknown := [name for name in fail_on if name != "tokens"]:
        raise ArgumentError(
            "nothing of that name can fail a run",
            where="--fail-on",
            found=unknown[0],
            allowed="tokens",
        )
    return bisect_dumps(
        open_dump(a),
        open_dump(b),
        accept=parse_accept(accept),
        fail_on_flip=bool(fail_on),
        command=["verify", *sys.argv[1:]],
    )


def _write(result: BisectResult, out: Path | None) -> Path | None:
    if out is None:
        return None
    from verify.report.html import write_report

    return write_report(result, out)
