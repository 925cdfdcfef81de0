"""Running gates: a command if there is one, then the reading of its result, then the ledger."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from verify.env import redact, redact_command
from verify.env.repositories import changed_files, head_commit
from verify.errors import ArgumentError
from verify.gates.config import Gate, Gates, definition, ledger_of, load
from verify.gates.readers import artifacts, read
from verify.gates.result import GateResult, Reading, Result
from verify.ledger.store import Ledger

OUTPUT = 2000
"""Characters of a command's output that the ledger keeps."""
ANSWERS = (0, 1, 3)
"""Exit codes with which commands of this package leave a result (docs/exit-codes.md); pytest leaves
0 and 1, and 5 where it found no test."""
_NO_TESTS = 5
_BY_CODE = {0: Result.PASS, 1: Result.FAIL, 3: Result.SKIPPED}


class Ran(msgspec.Struct, frozen=True):
    """How a command ended. ``code`` is None where it did not end by itself."""

    code: int | None
    seconds: float
    output: str
    trouble: str = ""


def run_gates(
    config: Path,
    names: Sequence[str] = (),
    *,
    ledger: Path | None = None,
    progress: Callable[[GateResult], None] = lambda _: None,
) -> list[GateResult]:
    """Run the gates of a file, or those named, in their order; each goes into the ledger at once.

    Raises:
        UsageError: the file is not in order, or a name is unknown. Nothing has been run then.
    """
    gates = load(config)
    folder = config.resolve().parent
    where = ledger_of(gates, folder, ledger)
    commit, dirty, run = head_commit(folder) or "", changed_files(folder), uuid.uuid4().hex
    done = []
    for gate in _chosen(gates, names):
        reading, ran, files = _decide(gate, folder)
        result = GateResult(
            gate=gate.name, kind=gate.kind, required=gate.required, result=reading.result,
            reason=redact(reading.reason), numbers=reading.numbers, commit=commit, dirty=dirty,
            definition=definition(gate), run=run, command=redact_command(gate.command),
            code=ran.code if ran else None, seconds=round(ran.seconds, 3) if ran else 0.0,
            output=redact(ran.output) if ran and reading.result is not Result.PASS else "",
        )  # fmt: skip
        Ledger(where).append("gate", msgspec.to_builtins(result), [config, *files])
        progress(result)
        done.append(result)
    return done


def _chosen(gates: Gates, names: Sequence[str]) -> list[Gate]:
    known = {gate.name: gate for gate in gates.gate}
    for name in names:
        if name not in known:
            raise ArgumentError(
                "there is no such gate", where="--gate", found=name, allowed=", ".join(known)
            )
    return [gate for name, gate in known.items() if not names or name in names]


def _decide(gate: Gate, folder: Path) -> tuple[Reading, Ran | None, list[Path]]:
    """Reading, how the command ended if there is one, and the files that the result rests on."""
    if not gate.command:
        return read(gate, folder), None, artifacts(gate, folder)
    before = _identity(folder / gate.report) if gate.report else None
    target = folder / gate.report if gate.stdout else None
    ran = run_command(gate.command, folder, gate.timeout, target)
    if ran.trouble:
        return Reading(Result.ERROR, ran.trouble), ran, []
    if not gate.report:
        result = _BY_CODE.get(-1 if ran.code is None else ran.code, Result.ERROR)
        return Reading(result, f"exit code {ran.code}"), ran, []
    if ran.code not in ANSWERS and not (gate.kind == "tests" and ran.code == _NO_TESTS):
        return Reading(Result.ERROR, f"the command ended with exit code {ran.code}"), ran, []
    if _identity(folder / gate.report) == before:
        reason = "the command wrote no result" if before is None else "the result is an older one"
        return Reading(Result.ERROR, f"{reason}: {gate.report}"), ran, []
    reading = read(gate, folder)
    if reading.result is Result.PASS and ran.code != 0 and gate.kind == "tests":
        reading = Reading(Result.FAIL, f"{reading.reason}, but the exit code is {ran.code}")
    return reading, ran, artifacts(gate, folder)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def run_command(
    command: Sequence[str], folder: Path, timeout: float, target: Path | None = None
) -> Ran:
    """Run a program without a shell and with nothing to read; at the end of the time it and what it
    started are killed. What it prints goes to ``target`` where there is one, its errors never."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output, _opened(target) as result:
        try:
            process = subprocess.Popen(
                _resolved(command), cwd=folder, stdin=subprocess.DEVNULL, stdout=result or output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Ran(None, 0.0, "", f"{command[0]} cannot be run: {error.strerror}")
        trouble = ""
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code, trouble = None, f"it did not end within {timeout:g} s"
        finally:
            _end(process)
        if code is not None and code < 0:
            trouble = f"it was killed by signal {-code}"
        return Ran(code, time.monotonic() - began, _tail(output.fileno()), trouble)


@contextlib.contextmanager
def _opened(target: Path | None) -> Iterator[IO[bytes] | None]:
    """A new file in the place of ``target``; None without one."""
    if target is None:
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with target.open("xb") as file:
        yield file


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the command's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(handle: int) -> str:
    size = os.fstat(handle).st_size
    # UTF-8 has up to four bytes a character.
    data = os.pread(handle, 4 * OUTPUT, max(0, size - 4 * OUTPUT))
    # Redacted before it is cut, so that a cut through a secret does not let its end through.
    return redact(data.decode(errors="replace"))[-OUTPUT:]


def _resolved(command: Sequence[str]) -> list[str]:
    start = {
        "verify": [sys.executable, "-c", "from verify.cli import main; main()"],
        "python": [sys.executable],
    }
    return [*start.get(command[0], [command[0]]), *command[1:]]
