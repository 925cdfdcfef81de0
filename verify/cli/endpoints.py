"""``verify endpoints SPEC``: compare implementations bit by bit on declared cases."""

from __future__ import annotations

import json
from pathlib import Path

import typer

_OUT = typer.Option(None, "--out", help="Folder for endpoints.json.")


def endpoints(
    spec: str = typer.Argument(..., help="A Python file with SPEC, or module:object."),
    cases: str = typer.Option("", "--cases", help="Only cases whose name holds this text."),
    out: Path | None = _OUT,
) -> None:
    """Compare two or more implementations; exits 1 where bits differ or a case did not run."""
    import dataclasses

    from verify.endpoints import compare_endpoints, load_spec

    loaded = load_spec(spec)
    chosen = [case for case in loaded.cases if cases in case.name]
    checks = compare_endpoints(dataclasses.replace(loaded, cases=chosen))
    for check in checks:
        state = f"FAIL  {check.failure}" if check.failure else "ok"
        typer.echo(f"{check.case}  {check.endpoint}  {check.check}: {state}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"checks": [check.as_dict() for check in checks]}, indent=1)
        (out / "endpoints.json").write_text(text + "\n")
    raise typer.Exit(1 if any(check.failure for check in checks) else 0)
