"""The command that recorded a run, run again with a window and full tensors."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from verify.bisect.again import options
from verify.dumps.format import Dump
from verify.dumps.format.tokens import TOKENS_OUT
from verify.dumps.program.launch import run_command
from verify.dumps.program.settings import Settings
from verify.dumps.window import Spans
from verify.env import redact
from verify.env.secrets import REDACTED
from verify.errors import ArgumentError, UsageError

_OURS: Final = (sys.executable, "-c", "from verify.cli import main; main()", "capture")
_REPLACED: Final = (
    "--out", "--level", "--taps", "--ops", "--edges", "--steps", "--rows", "--byte-budget", "--tokens",
)  # fmt: skip
_LAST_LINES: Final = 12
_TOKENS: Final = 32
"""What `verify capture` generates unless it is told."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a second pass records of one run."""

    steps: Spans
    taps: list[str]
    edges: str
    ops: tuple[str, ...] = ()
    rows: str | None = None
    byte_budget: int | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was run, without secrets, and its exit code."""

    command: list[str]
    exit_code: int


def run_again(dump: Dump, given: str | None, order: Order, out: Path, option: str) -> Ran:
    """Record the run of ``dump`` again, into ``out``.

    Args:
        given: a command line in place of the one that the manifest has.
        option: the option that gives one, for messages.

    Raises:
        UsageError: there is no command, or it recorded nothing.
    """
    words = _split(given, option) if given else dump.manifest.command
    _check(words, dump, option)
    log = out.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    if _is_ours(words):
        words = [*words[:2], *with_window(words[2:], dump, order), "--out", str(out)]
        code = _run_ours(words[2:], log)
    else:
        started: dict[str, Any] = dump.manifest.capture.get("started") or {}
        cwd = None if given else started.get("cwd")
        code = run_command(words, _settings(dump, order, out, started), cwd=cwd, log=log)
    if not (out / "manifest.json").is_file():
        raise UsageError(
            "the second pass recorded nothing",
            where=shlex.join(words),
            found=f"exit code {code}; it said: {_end_of(log)}",
            hint=f"try it alone, and give a command that works as {option}",
        )
    return Ran([redact(word) for word in words], code)


def _run_ours(arguments: list[str], log: Path) -> int:
    with log.open("wb") as file:
        return subprocess.run(
            [*_OURS, *arguments], stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode


def _settings(dump: Dump, order: Order, out: Path, started: dict[str, Any]) -> Settings:
    return Settings(
        out=out.absolute(),
        level="full",
        edges=order.edges,
        taps=tuple(order.taps),
        ops=_ops(dump, order),
        steps=str(order.steps),
        rows=order.rows,
        byte_budget=order.byte_budget,
        model=str(started.get("model", "")),
    )


def _split(text: str, option: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ArgumentError("not a command line", where=option, found=error) from None


def _check(words: list[str], dump: Dump, option: str) -> None:
    hint = f"{option} 'COMMAND': run as it is, or a `verify capture ...`"
    if not words:
        raise UsageError("the manifest has no command to run again", where=dump.path, hint=hint)
    if any(REDACTED in word for word in words):
        raise UsageError(
            "the command in the manifest had secrets, which were not written down",
            where=dump.path,
            found=shlex.join(words),
            hint=hint,
        )
    if not _is_ours(words) and "--" not in words and words[0].endswith(".py"):
        raise UsageError(
            "the manifest has the name of a script, and not how it was started",
            where=dump.path,
            found=shlex.join(words),
            hint=hint,
        )


def _is_ours(words: list[str]) -> bool:
    """A generation run of `verify capture`, whose options say everything."""
    return words[1:2] == ["capture"] and "--" not in words


def with_window(words: list[str], dump: Dump, order: Order) -> list[str]:
    """Options of `verify capture`, without ``--out``, that record the window of ``order``; nothing
    is generated after its last step.

    Args:
        words: the options that recorded ``dump``.
    """
    kept = [option for option in options(words) if option[0] not in _REPLACED]
    given = [value or "" for name, value in options(words) if name == "--tokens"]
    planned = int(given[-1]) if given and given[-1].isdigit() else _TOKENS
    kept += [
        ("--level", "full"),
        ("--edges", order.edges),
        ("--steps", str(order.steps)),
        ("--tokens", str(_tokens(dump, order.steps, planned))),
        *(("--taps", glob) for glob in order.taps),
        *(("--ops", glob) for glob in _ops(dump, order)),
    ]
    if order.rows is not None:
        kept.append(("--rows", order.rows))
    if order.byte_budget is not None:
        kept.append(("--byte-budget", str(order.byte_budget)))
    return [word for name, value in kept for word in (name, value) if word is not None]


def _ops(dump: Dump, order: Order) -> tuple[str, ...]:
    """Operations below modules: those of the first pass, and what the window asks for."""
    first = map(str, dump.manifest.capture.get("ops") or [])
    return tuple(dict.fromkeys([*first, *order.ops]))


def _tokens(dump: Dump, steps: Spans, planned: int) -> int:
    """Tokens to generate until the window ends: one is chosen in every step that has a choice."""
    last = steps.last
    if last is None:
        return planned
    choices = {record.step for record in dump.records() if record.tap == TOKENS_OUT}
    return min(planned, max(1, sum(step <= last for step in choices)))


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(lines[-_LAST_LINES:]) or "nothing"
