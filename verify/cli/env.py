"""``verify env`` and ``verify env diff A B``: what a run really ran on, and what two did not share."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from verify.errors import ArgumentError, DumpError

if TYPE_CHECKING:
    from verify.bisect.result import Confounder
    from verify.env import Difference

app = typer.Typer(help="Show what a process runs on, and what differs between two runs.")


@app.callback(invoke_without_command=True)
def env(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    load: Annotated[
        list[str] | None,
        typer.Option("--load", help="Import this module first, so that its libraries show."),
    ] = None,
    repository: Annotated[
        list[Path] | None,
        typer.Option("--repository", help="Also record the state of this git repository."),
    ] = None,
) -> None:
    """Show packages, loaded shared objects, repositories, switches and devices of this process."""
    if context.invoked_subcommand is not None:
        return
    from verify.env import collect

    for name in load or []:
        _load(name)
    facts = collect(repository or [])
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    from verify.report.terminal.environment import render_environment

    render_environment(facts, Console())


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="A dump, or JSON of `verify env --json`.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another one.", metavar="B")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name what differs, by how likely it is to matter. Two dumps: their settings and models too.

    Exit code 0: nothing that was recorded differs; 1: something does; 2: a file cannot be read.
    """
    from verify.env import say_changes

    found = _differences(a, b)
    sentence = say_changes(found)
    if as_json:
        import msgspec

        plain = {"differences": msgspec.to_builtins(found), "changed_at_once": sentence}
        typer.echo(json.dumps(plain, indent=1))
    else:
        from verify.report.terminal.environment import render_differences

        render_differences(found, sentence, Console())
    raise typer.Exit(1 if found else 0)


def _differences(a: Path, b: Path) -> list[Difference] | list[Confounder]:
    if a.is_dir() and b.is_dir():
        from verify.bisect.confounders import find_confounders
        from verify.dumps.format import open_dump

        return find_confounders(open_dump(a), open_dump(b))
    from verify.env import difference

    return difference(_facts(a), _facts(b))


def _facts(path: Path) -> dict[str, Any]:
    """The environment in a dump or in a JSON file."""
    if path.is_dir():
        from verify.dumps.format import open_dump

        return open_dump(path).manifest.env
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DumpError(
            "an environment cannot be read", where=path, found=error,
            hint="write one with `verify env --json > FILE`",
        ) from error  # fmt: skip
    if not isinstance(facts, dict) or "packages" not in facts:
        raise DumpError(
            "the file holds no environment", where=path,
            allowed="a dump, or the output of `verify env --json`",
        )  # fmt: skip
    return facts


def _load(name: str) -> None:
    """Import a module, from the working folder as well."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise ArgumentError(
            "a module cannot be imported", where="--load", found=f"{name}: {error}"
        ) from error
