"""The state of every gate for a commit, from the ledger alone; and waiving a result."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from verify.env.repositories import head_commit, resolve
from verify.errors import ArgumentError, CorruptDumpError, UsageError
from verify.gates.config import Gate, Gates, definition, ledger_of, load
from verify.gates.result import GateResult, GateState, Result, Status, Waiver
from verify.ledger.check import check
from verify.ledger.entry import Entry
from verify.ledger.store import Ledger

NOT_RUN = "NOT RUN"
_WORDS = {Result.FAIL: "FAILED"}


@dataclass(slots=True)
class _History:
    """What the ledger holds on one gate for one commit, oldest first."""

    results: list[tuple[Entry, GateResult]] = field(default_factory=list)
    waivers: dict[str, Waiver] = field(default_factory=dict)
    """By the hash of the entry that is waived."""


def status(
    config: Path,
    *,
    commit: str | None = None,
    ledger: Path | None = None,
    allow_dirty: bool = False,
) -> Status:
    """The newest result of each gate of the file for a commit (default: the one checked out).

    Args:
        allow_dirty: let results count that were had on files other than the commit's.

    Raises:
        UsageError: the file is not in order, or git knows no such commit.
        CorruptDumpError: the ledger is not whole.
    """
    gates, folder = load(config), config.resolve().parent
    wanted = _commit(folder, commit)
    histories = _histories(Ledger(ledger_of(gates, folder, ledger)), wanted)
    states = [_state(gate, histories[gate.name], allow_dirty) for gate in gates.gate]
    closed = [state for state in states if state.required and not state.passed]
    return Status(
        commit=wanted, gates=states, summary=_summary(states, closed), exit_code=int(bool(closed))
    )


def waive(
    config: Path, gate: str, *, reason: str, by: str, commit: str | None = None,
    ledger: Path | None = None,
) -> Waiver:  # fmt: skip
    """Record that people go on in spite of the newest result of a gate. It stays what it is.

    Raises:
        UsageError: no such gate, no result to waive, a result that passed, or no reason or name.
        CorruptDumpError: the ledger is not whole.
    """
    for name, text in (("--reason", reason), ("--by", by)):
        if not text.strip():
            raise ArgumentError("a waiver needs a reason and a name", where=name, found="nothing")
    gates, folder = load(config), config.resolve().parent
    _known(gates, gate)
    wanted = _commit(folder, commit)
    place = Ledger(ledger_of(gates, folder, ledger))
    results = _histories(place, wanted)[gate].results
    if not results or results[-1][1].result is Result.PASS:
        raise UsageError(
            "there is nothing to waive", where=gate,
            found="it passed" if results else f"it was not run for {wanted[:12] or 'this folder'}",
            hint=f"`verify gate run --gate {gate}`",
        )  # fmt: skip
    entry, result = results[-1]
    waiver = Waiver(
        gate=gate, commit=wanted, entry=entry.origin(), result=result.result, reason=reason, by=by
    )
    place.append("waiver", msgspec.to_builtins(waiver))
    return waiver


def _known(gates: Gates, name: str) -> None:
    names = [gate.name for gate in gates.gate]
    if name not in names:
        raise ArgumentError("there is no such gate", found=name, allowed=", ".join(names))


def _commit(folder: Path, given: str | None) -> str:
    if given is None:
        return head_commit(folder) or ""
    found = resolve(folder, given)
    if found is None:
        raise ArgumentError("git knows no such commit here", where="--commit", found=given)
    return found


def _histories(ledger: Ledger, commit: str) -> dict[str, _History]:
    """By gate. A merged ledger holds its entries in order of arrival, so they are sorted by time."""
    histories: dict[str, _History] = defaultdict(_History)
    if not ledger.path.exists():
        return histories
    if problems := check(ledger).problems:
        raise CorruptDumpError(
            "the ledger is not whole, so nothing can be read off it", where=ledger.folder,
            found="; ".join(problems[:3]), hint=f"run `verify ledger check {ledger.folder}`",
        )  # fmt: skip
    entries = [e for e in ledger.entries() if e.data.get("commit") == commit]
    for entry in sorted(entries, key=lambda e: e.time):
        if entry.kind == "gate":
            result = msgspec.convert(entry.data, GateResult)
            histories[result.gate].results.append((entry, result))
        elif entry.kind == "waiver":
            waiver = msgspec.convert(entry.data, Waiver)
            histories[waiver.gate].waivers[waiver.entry] = waiver
    return histories


def _state(gate: Gate, history: _History, allow_dirty: bool) -> GateState:
    state = GateState(
        gate=gate.name, kind=gate.kind, required=gate.required, state=NOT_RUN, passed=False,
        reason="no result for this commit", runs=len(history.results),
        not_passed=sum(result.result is not Result.PASS for _, result in history.results),
    )  # fmt: skip
    if not history.results:
        return state
    entry, newest = history.results[-1]
    state.time, state.numbers, state.reason = entry.time, newest.numbers, newest.reason
    state.state = _WORDS.get(newest.result, str(newest.result))
    state.passed = newest.result is Result.PASS
    state.waiver = history.waivers.get(entry.origin())
    if state.waiver is not None:
        state.state += ", waived"
        state.passed = False
    if newest.definition != definition(gate):
        state.passed, state.state = False, f"{state.state}, for another definition"
        state.reason = f"the gate was changed since: {state.reason}"
    elif newest.dirty and not allow_dirty and state.passed:
        state.passed, state.state = False, f"{state.state}, with uncommitted changes"
    return state


def _summary(states: list[GateState], closed: list[GateState]) -> str:
    required = sum(state.required for state in states)
    if not closed:
        return f"All {required} required gates pass."
    names = ", ".join(f"{state.gate} ({state.state})" for state in closed)
    return f"{len(closed)} of {required} required gates do not pass: {names}."
