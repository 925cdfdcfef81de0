"""`verify taps`: propose a tap map between two runs, or check one against them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from verify.errors import UsageError

if TYPE_CHECKING:
    from verify.taps.proposal import Proposal


def taps(
    a: Annotated[Path, typer.Argument(help="Run A.", metavar="A", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Run B.", metavar="B", show_default=False)],
    tap_map: Annotated[
        str | None, typer.Option("--map", help="Check this map, a name or a file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the proposed map to this file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Relate the taps of two implementations: which tap of B holds the numbers of which tap of A.

    Exit code 0: every tap has its counterpart; 1: a line of --map relates tensors that are not
    alike; 3: taps stay open; 2: usage.
    """
    from verify.dumps.format import open_dump
    from verify.report.json import to_json
    from verify.report.terminal import taps as terminal

    first, second = open_dump(a), open_dump(b)
    if tap_map is not None:
        from verify.compare.map_check import check_map
        from verify.taps.load import load_map

        if out is not None:
            raise UsageError("--out writes a proposal", where="--out", found="--out with --map")
        check = check_map(first, second, load_map(tap_map))
        code = check.exit_code
        if json:
            sys.stdout.buffer.write(to_json(check))
        else:
            terminal.render_check(check, Console())
        raise typer.Exit(code)
    from verify.taps.propose import propose

    proposal = propose(first, second, out.stem if out else "proposed")
    if out is not None:
        _write(out, proposal)
    if json:
        sys.stdout.buffer.write(to_json(proposal))
    else:
        terminal.render_proposal(proposal, Console())
        if out is not None:
            Console().print(f"map: {out}", highlight=False, soft_wrap=True)
    raise typer.Exit(3 if proposal.open_a or proposal.open_b else 0)


def _write(out: Path, proposal: Proposal) -> None:
    from verify.report.place import write_file
    from verify.taps.toml import proposal_toml

    if out.exists():
        raise UsageError(
            "there is a file of that name",
            where="--out",
            found=out,
            hint="a map may have been edited by hand: give another name, or remove it yourself",
        )
    write_file(out, proposal_toml(proposal).encode())
