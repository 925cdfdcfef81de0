"""Recording the streams: each in a process of its own, kept line by line, taken up again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import xxhash

from verify.dumps.format import Dump, open_dump
from verify.env import redact
from verify.errors import DumpError, VerifyError
from verify.formats import decode
from verify.suite.config import Option, Prompt, Side, Suite, text_of
from verify.suite.result import Stream

STREAMS = "streams.jsonl"
LOGITS = "logits"
SIDES: tuple[Literal["a", "b"], ...] = ("a", "b")

_RUN = "from verify.cli import main; main()"
_TAPS = ("tokens.*", LOGITS)
"""Enough for identity, margins and log-probabilities; a split is recorded in full on request."""

Progress = Callable[[str], None]


def record_streams(
    suite: Suite, folder: Path, out: Path, say: Progress = lambda text: None
) -> list[Stream]:
    """All streams of the suite; those that ``out`` holds already are taken as they are.

    Args:
        folder: of the suite's file, for prompts and own programs.
    """
    done = {stream.key: stream for stream in read_streams(out) if stream.state == "OK"}
    found = []
    for prompt in suite.prompt:
        for side in SIDES:
            key = stream_key(suite, prompt, side, folder)
            kept = done.get(key)
            if kept is None or not (out / kept.run).is_dir():
                say(f"{prompt.name}, {side.upper()}")
                kept = _record(suite, prompt, side, key, folder, out)
                _append(out / STREAMS, kept)
            found.append(kept)
    return found


def read_streams(out: Path) -> list[Stream]:
    """Whole lines of ``streams.jsonl``; a line that a killed run left unfinished is none.

    Raises:
        DumpError: a whole line that is no stream.
    """
    path = out / STREAMS
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        return [msgspec.json.decode(line, type=Stream) for line in lines if line.endswith(b"\n")]
    except msgspec.MsgspecError as error:
        raise DumpError(
            "not the streams of a suite", where=path, found=error, hint="choose another --out"
        ) from error


def stream_key(suite: Suite, prompt: Prompt, side: Literal["a", "b"], folder: Path) -> str:
    """xxh3-128 hex of text, options, environment, command and limit."""
    how = getattr(suite, side)
    parts = (text_of(prompt, folder), suite.tokens, suite.shared, msgspec.to_builtins(how), side)
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(parts, order="sorted"))


def capture_arguments(options: Mapping[str, Option]) -> list[str]:
    """Options of ``verify capture`` as words."""
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
        else:
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{name}", str(each)]
    return words


def run_capture(
    suite: Suite,
    side: Literal["a", "b"],
    prompt_file: Path,
    out: Path,
    folder: Path,
    more: tuple[str, ...],
) -> str:
    """Record one stream into ``out``; what went wrong, or nothing."""
    how: Side = getattr(suite, side)
    if how.command:
        filled = {
            "out": out.absolute(),
            "prompt_file": prompt_file.absolute(),
            "tokens": suite.tokens,
        }
        command = [word.format_map(filled) for word in how.command]
        command = [sys.executable if command[0] == "python" else command[0], *command[1:]]
    else:
        command = [
            sys.executable,
            "-c",
            _RUN,
            "capture",
            "--prompt-file",
            str(prompt_file.absolute()),
        ]
        command += [
            "--out",
            str(out.absolute()),
            *capture_arguments({**suite.shared, **how.options}),
        ]
        command += more
    try:
        ended = subprocess.run(
            command, cwd=folder, env={**os.environ, **how.environment}, capture_output=True,
            text=True, errors="replace", timeout=suite.timeout, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return redact(str(error))
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
        return redact(f"exit code {ended.returncode}: {last[0]}")
    return ""


def _record(
    suite: Suite, prompt: Prompt, side: Literal["a", "b"], key: str, folder: Path, out: Path
) -> Stream:
    run = Path("runs") / f"{prompt.name}-{side}"
    shutil.rmtree(out / run, ignore_errors=True)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    text = out / "runs" / f"{prompt.name}.txt"
    text.write_text(text_of(prompt, folder), "utf-8")
    more = ["--tokens", str(suite.tokens), "--edges", "identity"]
    for tap in _TAPS:
        more += ["--taps", tap]
    began = time.monotonic()
    told: dict[str, Any] = {"prompt": prompt.name, "side": side, "key": key}
    trouble = run_capture(suite, side, text, out / run, folder, tuple(more))
    seconds = round(time.monotonic() - began, 3)
    if trouble:
        return Stream(**told, state="ERROR", error=trouble, seconds=seconds)
    try:
        read = _read(open_dump(out / run), suite.tokens)
    except VerifyError as error:
        return Stream(**told, state="ERROR", error=redact(error.what), seconds=seconds)
    return Stream(**told, state="OK", run=str(run), seconds=seconds, **read)


def _read(dump: Dump, limit: int) -> dict[str, Any]:
    """What a dump says of its only sequence.

    Raises:
        DumpError: it did not come to its end, or holds other than one sequence.
    """
    sequences = dump.manifest.workload.sequences
    if not dump.complete or len(sequences) != 1:
        found = f"{len(sequences)} sequences" if dump.complete else "a run without an end"
        raise DumpError("a stream is one complete sequence", where=dump.path, found=found)
    only = sequences[0]
    generated = list(only.generated)
    return {
        "prompt_tokens": len(only.prompt),
        "generated": generated,
        "ended": "limit" if len(generated) >= limit else "natural",
        "step_seconds": _step_seconds(dump),
        "log_probabilities": _log_probabilities(dump, len(only.prompt), generated),
    }


def _step_seconds(dump: Dump) -> list[float]:
    """A capture commits a part at the end of each step: their times tell how long a step took."""
    steps = len({record.step for record in dump.records()})
    ends = sorted(
        path.stat().st_mtime for path in Path(str(dump.path)).glob("rank-0/part-*/part.json")
    )
    if len(ends) != steps:
        return []
    return [round(b - a, 4) for a, b in pairwise(ends)]


def _log_probabilities(dump: Dump, prompt: int, generated: list[int]) -> list[float]:
    found: dict[int, float] = {}
    for record in dump.records():
        if record.tap != LOGITS or dump.holder(record).kept != "full":
            continue
        rows = dump.rows(record)
        words = dump.read_words(record)
        for number, position in enumerate(rows.position.tolist()):
            index = position - prompt + 1
            if 0 <= index < len(generated):
                logits = decode(words[number], record.dtype)
                top = float(logits.max())
                total = top + float(np.log(np.exp(logits - top).sum()))
                found[index] = float(logits[generated[index]]) - total
    return [found[i] for i in range(len(generated))] if len(found) == len(generated) else []


def _append(path: Path, stream: Stream) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(stream) + b"\n")
        file.flush()
        os.fsync(file.fileno())
