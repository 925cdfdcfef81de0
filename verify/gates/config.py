"""``gates.toml``, typed: every key and value is checked before anything runs."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from verify.errors import UsageError


class Gate(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all kinds of gates have in common."""

    name: str
    required: bool = True
    why: str = ""
    command: list[str] = []
    """Program and arguments, run without a shell in the folder of gates.toml. ``verify`` and
    ``python`` stand for the ones that run the gate."""
    report: str = ""
    """Result file, relative to the folder of gates.toml."""
    stdout: bool = False
    """What the command prints is its result: it is written to ``report``."""
    timeout: float = 3600.0
    """Seconds."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class Tokens(Gate, frozen=True, tag="tokens"):
    """Token identity: every token of both runs, to their natural ends."""


class Bitwise(Gate, frozen=True, tag="bitwise"):
    """Every bit that both sides recorded is equal: endpoints.json, or report.json of a bisect."""


class Certificate(Gate, frozen=True, tag="certificate"):
    """The declared rounding explains every output: certify's JSON, or endpoints.json."""


class Parity(Gate, frozen=True, tag="parity"):
    """No difference beyond explained rounding, or beyond the noise of a noise.json."""

    noise: str = ""


class Repeatability(Gate, frozen=True, tag="repeatability"):
    """Repeats of one configuration are bitwise equal: noise.json, or report.json of two repeats."""

    min_runs: int = 2
    """Runs of the configuration, the first included."""


class Speed(Gate, frozen=True, tag="speed"):
    """The paired speed ratio: the upper end of its 95 % interval stays within ``max_ratio``."""

    max_ratio: float
    """Time of the other endpoint over time of the base."""


class Coverage(Gate, frozen=True, tag="coverage"):
    """Enough was compared."""

    min_share: float = 1.0
    """Compared rows over all rows of report.json that either run holds."""
    min_rows: int = 1


class Env(Gate, frozen=True, tag="env"):
    """The environments are the same apart from what is declared."""

    weights: tuple[Literal["likely", "possible", "unlikely"], ...] = ("likely",)
    """Weights of differences that fail the gate."""
    allow: tuple[str, ...] = ()
    """Names or subjects of differences that were meant."""


class Tests(Gate, frozen=True, tag="tests"):
    """A test run, by its JUnit XML."""

    min_tests: int = 1


class Command(Gate, frozen=True, tag="command"):
    """The exit code of a command: 0 PASS, 1 FAIL, 3 SKIPPED, anything else ERROR."""


AnyGate = (
    Tokens
    | Bitwise
    | Certificate
    | Parity
    | Repeatability
    | Speed
    | Coverage
    | Env
    | Tests
    | Command
)


class Gates(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    version: Literal[1]
    ledger: str = "ledger"
    """Folder of the ledger, relative to that of gates.toml."""
    gate: list[AnyGate]


def load(path: Path) -> Gates:
    """Read ``gates.toml``.

    Raises:
        UsageError: it is not there or not TOML, holds an unknown key, a value of another type, no
            required gate, a name twice, or a gate that has nothing to read.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            "the gates cannot be read", where=path, found=error.strerror,
            hint="docs/gates.md shows a file to start from; --config names another place",
        ) from error  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("gates.toml is not TOML", where=path, found=error) from error
    try:
        gates = msgspec.convert(table, Gates)
    except msgspec.ValidationError as error:
        raise UsageError(
            "gates.toml does not fit its description", where=f"{path}: {_place(table, str(error))}",
            found=str(error).partition(" - at ")[0], hint="docs/gates.md lists kinds and keys",
        ) from error  # fmt: skip
    _check(gates, path)
    return gates


def ledger_of(gates: Gates, folder: Path, given: Path | None) -> Path:
    """The ledger's folder: the one given, else the configured one beside gates.toml."""
    return given or folder / gates.ledger


def definition(gate: Gate) -> str:
    """SHA-256 of a gate as it is configured."""
    return hashlib.sha256(msgspec.json.encode(gate, order="sorted")).hexdigest()


def _place(table: dict[str, object], message: str) -> str:
    """The key, and the name of the gate instead of its number."""
    at = message.partition(" - at `$")[2].rstrip("`").lstrip(".")
    match = re.match(r"gate\[(\d+)\]\.?(.*)", at)
    gates = table.get("gate")
    if match and isinstance(gates, list) and isinstance(gates[int(match[1])], dict):
        name = gates[int(match[1])].get("name", f"number {int(match[1]) + 1}")
        return f"gate {name}" + (f", key {match[2]}" if match[2] else "")
    return at or "top level"


def _check(gates: Gates, path: Path) -> None:
    names = [gate.name for gate in gates.gate]
    faults = [f"{name}: this name stands twice" for name in names if names.count(name) > 1]
    for gate in gates.gate:
        faults += [f"{gate.name or 'a gate'}: {fault}" for fault in _faults(gate)]
    if not any(gate.required for gate in gates.gate):
        faults.append("no gate is required, so nothing could ever fail")
    if faults:
        raise UsageError("gates.toml cannot work as it is", where=path, found="; ".join(faults))


def _faults(gate: Gate) -> list[str]:
    faults = []
    if not re.fullmatch(r"[\w.-]+", gate.name):
        faults.append("a name has letters, digits, '-', '_' and '.' only")
    if isinstance(gate, Command):
        if not gate.command:
            faults.append("kind command needs a command")
        if gate.report:
            faults.append("kind command reads the exit code and no report")
    elif not gate.report:
        faults.append(f"kind {gate.kind} needs a report")
    if gate.stdout and not (gate.command and gate.report):
        faults.append("stdout needs a command, and a report to write its output to")
    if gate.timeout <= 0:
        faults.append("timeout is not positive")
    if isinstance(gate, Speed) and not gate.max_ratio > 0:
        faults.append("max_ratio is not positive")
    if isinstance(gate, Coverage) and not (0 < gate.min_share <= 1 and gate.min_rows > 0):
        faults.append("min_share is in (0, 1] and min_rows at least 1")
    if isinstance(gate, Tests) and gate.min_tests < 1:
        faults.append("min_tests is at least 1: a run without a test shows nothing")
    if isinstance(gate, Repeatability) and gate.min_runs < 2:
        faults.append("min_runs is at least 2: one run repeats nothing")
    return faults
