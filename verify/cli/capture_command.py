"""`verify capture -- COMMAND`: somebody's own program, recorded without a change of its code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from verify.errors import UsageError

if TYPE_CHECKING:
    from verify.dumps.program.settings import Settings

_OWN = ("taps", "ops", "level", "edges", "byte_budget", "steps", "rows", "out", "command")


def capture_command(context: typer.Context, command: list[str], settings: Settings) -> int:
    """Run ``command`` and say what was recorded; its exit code.

    Raises:
        UsageError: an option that is about generation, or nothing was recorded.
    """
    from verify.dumps.program.launch import run_command

    _refuse_options(context)
    code = run_command(command, settings)
    if not (settings.out / "manifest.json").is_file():
        raise UsageError(
            "the command recorded nothing",
            where=" ".join(command),
            found=f"exit code {code}, and no dump at {settings.out}",
            allowed="a Python process that can import verify and calls a torch module",
            hint="start it with the Python that verify is installed in; docs/recapture.md",
        )
    Console(highlight=False, soft_wrap=True).print(f"exit code {code}  ->  {settings.out}")
    return code


def _refuse_options(context: typer.Context) -> None:
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in _OWN:
            raise UsageError(
                "this option is about generation with a model of ours, not about a command",
                where=f"--{name.replace('_', '-')}",
                allowed=", ".join(f"--{own.replace('_', '-')}" for own in _OWN[:-1]),
            )


def new_folder(out: Path | None, command: list[str]) -> Path:
    """``out``, else ``runs/<name of the program or script>``, numbered where that is taken."""
    if out is not None:
        return out
    script = next((word for word in command if word.endswith(".py")), command[0])
    base = Path("runs") / Path(script).stem
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path
