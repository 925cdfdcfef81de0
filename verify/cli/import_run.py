"""`verify import`: the dump of another tool as a run of dump format 1."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verify.errors import ArgumentError


def import_run(
    path: Annotated[
        Path, typer.Argument(help="File or folder that another tool wrote.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder for the run; default: PATH.run.")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="Format; default: recognised by the content.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Paths in a plain tree: {tap}, {step}, {rank}, {order}, {any}."),
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option("--axes", help="GLOB=AXES, for example '*=b t c', repeatable."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", help="GLOB=FORMAT of raw bytes in npy files, repeatable."),
    ] = None,
) -> None:
    """Read a dump of another tool into a run that every command opens.

    Exit code 0: imported; 2: not recognised, broken, or with more in it than tensors and plain
    values. Nothing in a file is ever executed.
    """
    from verify.dumps.importers.observation import Options
    from verify.dumps.importers.registry import open_source
    from verify.dumps.importers.writing import write_run

    options = Options(pattern=pattern, axes=_table(axes, "--axes"), dtypes=_table(dtype, "--dtype"))
    imported = open_source(path, format, options)
    target = out or path.with_name(f"{path.name}.run")
    count = write_run(imported, target)
    source = imported.source
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{source.format}: {count:,} records -> {target}", markup=False)
    for text in source.unknown:
        console.print(f"  not known: {text}", markup=False)
    for text in source.notes:
        console.print(f"  note: {text}", markup=False)


def _table(lines: list[str] | None, where: str) -> tuple[tuple[str, str], ...]:
    found = []
    for line in lines or ():
        glob, equals, value = line.rpartition("=")
        if not glob or not equals:
            raise ArgumentError("not GLOB=VALUE", where=where, found=line)
        found.append((glob, value))
    return tuple(found)


def say_imported(text: str) -> None:
    """One line on stderr about what was read in place of a dump."""
    print(text, file=sys.stderr)
