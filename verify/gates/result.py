"""Results of gates and their state for a commit: plain data, rendered by verify.report.gates."""

from __future__ import annotations

from enum import StrEnum

import msgspec

Number = float | int | str


class Result(StrEnum):
    """How one gate ended. Only PASS opens it.

    FAIL: it was checked and does not hold. ERROR: the check itself broke. SKIPPED: it came to no
    decision, because nothing was compared or everything was skipped.
    """

    PASS = "PASS"
    FAIL = "FAIL"
    ERROR = "ERROR"
    SKIPPED = "SKIPPED"


class Reading(msgspec.Struct, frozen=True):
    """What a result file says about a gate."""

    result: Result
    reason: str
    numbers: dict[str, Number] = msgspec.field(default_factory=dict)


class GateResult(msgspec.Struct, kw_only=True):
    """One gate that was run: the data of its ledger entry."""

    gate: str
    kind: str
    required: bool
    result: Result
    reason: str
    numbers: dict[str, Number] = msgspec.field(default_factory=dict)
    commit: str
    """Full hash, empty outside git."""
    dirty: bool
    """Tracked files differed from the commit."""
    definition: str
    """SHA-256 of the gate as configured, so that a loosened gate does not inherit a PASS."""
    run: str
    """The same for all gates of one call."""
    command: list[str] = msgspec.field(default_factory=list)
    code: int | None = None
    seconds: float = 0.0
    output: str = ""
    """End of what the command wrote, unless it passed."""


class Waiver(msgspec.Struct, kw_only=True):
    """People go on in spite of one result. It stays what it is."""

    gate: str
    commit: str
    entry: str
    """Hash of the ledger entry that is waived; a later result is not."""
    result: Result
    reason: str
    by: str


class GateState(msgspec.Struct, kw_only=True):
    """The newest result of one gate for a commit."""

    gate: str
    kind: str
    required: bool
    state: str
    """``PASS``, ``FAILED``, ``ERROR``, ``SKIPPED``, ``NOT RUN``; with ``, waived`` where it is."""
    passed: bool
    reason: str
    numbers: dict[str, Number] = msgspec.field(default_factory=dict)
    waiver: Waiver | None = None
    time: str = ""
    runs: int = 0
    not_passed: int = 0
    """Of these runs; a PASS after other results says so."""


class Status(msgspec.Struct, kw_only=True):
    """All gates for one commit."""

    commit: str
    gates: list[GateState]
    summary: str
    exit_code: int
    schema: str = "verify-gates/1"
