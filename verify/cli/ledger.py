"""``verify ledger add | show | check | merge``: the record of evidence that nobody can quietly edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from verify.errors import ArgumentError

app = typer.Typer(
    help="Append to, show, check and merge a ledger of evidence (docs/ledger.md).",
    no_args_is_help=True,
)

_Folder = Annotated[Path, typer.Argument(help="Folder of the ledger.", metavar="LEDGER")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def add(
    ledger: _Folder,
    kind: Annotated[str, typer.Option("--kind", help="What the entry is about.")] = "note",
    text: Annotated[str, typer.Option("--text", help="A sentence to keep.")] = "",
    data: Annotated[str, typer.Option("--data", help="A JSON object to keep.")] = "{}",
    artifact: Annotated[
        list[Path] | None, typer.Option("--artifact", help="A file to store, repeatable.")
    ] = None,
) -> None:
    """Append one entry; the first makes the ledger. What looks like a secret is not written."""
    from verify.ledger.store import Ledger

    table = _object(data) | ({"text": text} if text else {})
    if not table and not artifact:
        raise ArgumentError("an entry has to say something", allowed="--text, --data, --artifact")
    if kind in ("gate", "waiver", "recovery"):
        raise ArgumentError(
            "this kind is written by its own command", where="--kind", found=kind,
            hint="use `verify gate run` or `verify gate waive`",
        )  # fmt: skip
    entry = Ledger(ledger).append(kind, table, artifact or [])
    typer.echo(f"entry {entry.number} {entry.hash}")


@app.command()
def show(
    ledger: _Folder,
    kind: Annotated[str | None, typer.Option("--kind", help="Only entries of this kind.")] = None,
    as_json: _Json = False,
) -> None:
    """Print the entries, one a line. Only `verify ledger check` says whether they can be trusted."""
    from verify.ledger.store import Ledger
    from verify.report.terminal.ledger import render_entries

    entries = [e for e in Ledger(ledger).entries() if kind is None or e.kind == kind]
    if as_json:
        import msgspec

        typer.echo(json.dumps(msgspec.to_builtins(entries), indent=1))
        return
    render_entries(entries, Console())


@app.command()
def check(
    ledger: _Folder,
    last: Annotated[
        str | None, typer.Option("--last", help="A hash noted earlier that must be in the chain.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Read every line and artifact against its hash. Exit code 1: something was changed or lost."""
    from verify.ledger.check import check as check_ledger
    from verify.ledger.store import Ledger
    from verify.report.terminal.ledger import render_check

    found = check_ledger(Ledger(ledger), must_hold=last)
    if as_json:
        plain = {
            name: getattr(found, name) for name in ("entries", "artifacts", "last", "problems")
        }
        typer.echo(json.dumps(plain, indent=1))
    else:
        render_check(found, Console())
    raise typer.Exit(0 if found.whole else 1)


@app.command()
def merge(
    into: _Folder,
    other: Annotated[Path, typer.Argument(help="Ledger to take entries from.", metavar="OTHER")],
) -> None:
    """Append what OTHER holds and LEDGER does not, with artifacts; twice adds nothing twice."""
    from verify.ledger.merge import merge as merge_ledgers
    from verify.ledger.store import Ledger

    new = merge_ledgers(Ledger(into), Ledger(other))
    typer.echo(f"{len(new)} entries added")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentError("--data is not JSON", found=error) from error
    if not isinstance(value, dict):
        raise ArgumentError("--data is not a JSON object", found=type(value).__name__)
    return value
