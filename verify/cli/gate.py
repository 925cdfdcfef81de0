"""``verify gate run | status | waive``: what has to hold before a change goes in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    help="Run the checks of gates.toml, keep their results, and say what is open (docs/gates.md).",
    no_args_is_help=True,
)

_Config = Annotated[Path, typer.Option("--config", help="The file that lists the gates.")]
_Ledger = Annotated[
    Path | None, typer.Option("--ledger", help="Another ledger than the file names.")
]
_Commit = Annotated[str | None, typer.Option("--commit", help="Default: the one checked out.")]
_GATES = Path("gates.toml")


class Format(StrEnum):
    """Formats of a status."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


@app.command()
def run(
    gate: Annotated[
        list[str] | None, typer.Option("--gate", help="Only this one, repeatable.")
    ] = None,
    config: _Config = _GATES,
    ledger: _Ledger = None,
) -> None:
    """Run the gates and append each result to the ledger.

    Exit code 0: every required gate that ran is PASS; 1: another result; 2: gates.toml is wrong.
    """
    from verify.gates.result import Result
    from verify.gates.run import run_gates
    from verify.report.gates import render_results

    console = Console()
    done = run_gates(
        config, gate or [], ledger=ledger, progress=lambda each: render_results([each], console)
    )
    closed = any(each.required and each.result is not Result.PASS for each in done)
    raise typer.Exit(int(closed))


@app.command()
def status(
    commit: _Commit = None,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TEXT,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Let results with uncommitted changes count.")
    ] = False,
    config: _Config = _GATES,
    ledger: _Ledger = None,
) -> None:
    """Show the newest result of every gate for a commit.

    Exit code 0: every required gate is PASS; 1: one is not, waived or not; 2: the ledger or
    gates.toml cannot be read.
    """
    from verify.gates.status import status as status_of
    from verify.report import gates

    found = status_of(config, commit=commit, ledger=ledger, allow_dirty=allow_dirty)
    if form is Format.TEXT:
        gates.render_status(found, Console())
    elif form is Format.JSON:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
    else:
        typer.echo(gates.junit(found) if form is Format.JUNIT else gates.github(found), nl=False)
    raise typer.Exit(found.exit_code)


@app.command()
def waive(
    gate: Annotated[str, typer.Argument(help="Name of the gate.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", help="Why people go on.", show_default=False)],
    by: Annotated[str, typer.Option("--by", help="Who decides so.", show_default=False)],
    commit: _Commit = None,
    config: _Config = _GATES,
    ledger: _Ledger = None,
) -> None:
    """Record that people go on in spite of the newest result of a gate. The result stays, and
    `verify gate status` keeps its exit code."""
    from verify.gates.status import waive as waive_gate

    done = waive_gate(config, gate, reason=reason, by=by, commit=commit, ledger=ledger)
    shown = "FAILED" if done.result == "FAIL" else done.result
    typer.echo(f"{done.gate}: {shown}, waived by {done.by}: {done.reason}")
