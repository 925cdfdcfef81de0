"""The `verify` command: registers the subcommands and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

# Before anything loads torch: spinning barriers make small decode steps several times slower on
# shared machines, and no model hub may be asked for anything.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer
from rich.console import Console

from verify import __version__
from verify.errors import VerifyError

EXIT_TROUBLE = 2
EXIT_INTERRUPTED = 130

COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("capture", "verify.cli.capture", "capture"),
    ("compare", "verify.cli.compare", "compare"),
    ("bisect", "verify.cli.bisect", "bisect"),
    ("taps", "verify.cli.taps", "taps"),
    ("recapture", "verify.cli.recapture", "recapture"),
    ("replay", "verify.cli.replay", "replay"),
    ("swap", "verify.cli.swap", "swap"),
    ("noise", "verify.cli.noise", "noise"),
    ("suite", "verify.cli.suite", "suite"),
    ("inspect", "verify.cli.inspect", "inspect"),
    ("import", "verify.cli.import_run", "import_run"),
    ("plot", "verify.cli.plot", "plot"),
    ("demo", "verify.cli.demo", "demo"),
    ("selftest", "verify.cli.selftest", "selftest"),
    ("decode-table", "verify.cli.decode_table", "decode_table"),
    ("certify", "verify.cli.certify", "certify"),
    ("endpoints", "verify.cli.endpoints", "endpoints"),
)
"""Name of the command, module, function."""

GROUPS: tuple[tuple[str, str], ...] = (
    ("kernels", "verify.cli.kernels"),
    ("env", "verify.cli.env"),
    ("gate", "verify.cli.gate"),
    ("ledger", "verify.cli.ledger"),
)
"""Name of a group of commands, and the module that holds its `app`."""

app = typer.Typer(
    name="verify",
    help="Find where two runs of a model part, why, and whether that is rounding or a defect.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"verify {__version__} (firstdiff)")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def _register(command: str, module: str, function: str) -> None:
    """Add one subcommand. Its module must import cheaply: torch and plots load inside the call."""
    target: Callable[..., Any] = getattr(importlib.import_module(module), function)
    app.command(command)(target)


for _command in COMMANDS:
    _register(*_command)
for _name, _module in GROUPS:
    app.add_typer(importlib.import_module(_module).app, name=_name)


def main() -> None:
    """Run the command line. Exit codes: docs/exit-codes.md."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app()
    except VerifyError as error:
        errors.print(f"[bold red]error:[/] {_escaped(error)}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        errors.print("interrupted; what was committed to disk stays readable")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (for example `| head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_TROUBLE)


def _escaped(error: VerifyError) -> str:
    from rich.markup import escape

    return escape(str(error))
