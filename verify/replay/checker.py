"""A replay as a checker of `verify bisect`: what it knows of each tap, in the words of a verdict."""

from __future__ import annotations

import math

from verify.bisect.confounders import declared_formats, find_confounders
from verify.bisect.local import Checker, LocalFinding, Op
from verify.bisect.result import Verdict
from verify.bounds import Bound
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.replay.result import ReplayResult, Status, TapReplay

_TITLES = {
    Status.INHERITED: "adds nothing itself; all of it is inherited",
    Status.EQUAL: "adds nothing itself; all of it is inherited",
    Status.ROUNDING: "what it adds itself is within its rounding budget",
    Status.PRECISION: "both sides follow their own convention, and each is explained by it",
    Status.SUSPECT: "what it adds itself is inside the bound, but not as rounding would have it",
    Status.UNFAITHFUL: "the model at hand does not reproduce the run here",
    Status.DEFECT: "no rounding explains what it adds itself",
}

_VERDICTS = {
    Status.INHERITED: Verdict.ROUNDING,
    Status.EQUAL: Verdict.ROUNDING,
    Status.ROUNDING: Verdict.ROUNDING,
    Status.PRECISION: Verdict.PRECISION,
    Status.SUSPECT: Verdict.UNRESOLVED,
    Status.UNFAITHFUL: Verdict.UNRESOLVED,
    Status.DEFECT: Verdict.DEFECT,
}

_NOTHING = Bound(0.0, "the same inputs gave the same bits in both implementations")
_ONE_RESULT = "the operation has one right result"
_NOT_FINITE = "no rounding makes a value that is not finite of these inputs"
_BUDGET = "share of what the roundings of both sides allow, from FP64 on the same inputs"


def checker(result: ReplayResult, a: Dump, b: Dump) -> Checker:
    """Answers for every tap that was replayed; None where a weight differs or nothing is known.

    Args:
        result: of :func:`verify.replay.run.replay` over all taps of these two dumps.
    """
    found = {tap.tap: tap for tap in result.taps}
    alias = {**_repeats(b), **_repeats(a)}
    replayed = {r.tap for r in b.records()}
    declared = declared_formats(find_confounders(a, b))

    def check(op: Op) -> LocalFinding | None:
        tap = op.place.tap
        holder = alias.get(tap, tap)
        if holder not in replayed or _other_weights(op.a, op.b, a, b):
            return None
        known = found.get(holder)
        return None if known is None else _answer(tap, known, op, declared)

    return check


def _answer(tap: str, known: TapReplay, op: Op, declared: dict[str, str]) -> LocalFinding | None:
    verdict = _VERDICTS.get(known.status)
    if verdict is None:
        return None
    title, reason = _TITLES[known.status], known.reason
    if known.status is Status.PRECISION and known.op.startswith("cast to "):
        name = known.op.removeprefix("cast to ")
        title = f"a cast to {name}"
        if name in declared:
            reason = f"{reason}; the settings declare it ({declared[name]})"
        else:
            verdict, reason = Verdict.UNRESOLVED, f"{reason}; no differing setting names it"
    used = known.budget_used
    bound = _NOTHING
    if used is not None and 0.0 < used < math.inf and 0.0 < known.largest_local < math.inf:
        bound = Bound(known.largest_local / used, _BUDGET)
    elif used == math.inf:
        one = known.op in ("copy", "product")
        bound = Bound(0.0, _ONE_RESULT if one else _NOT_FINITE)
    row = int(op.largest(1)[0])
    error = known.largest_local if used is not None else 0.0
    return LocalFinding(
        tap, verdict, reason, bound, error, row, 0, title, known.local, tuple(known.fits),
        known.held_by,
    )  # fmt: skip


def _repeats(dump: Dump) -> dict[str, str]:
    """Tap -> the tap that holds the very same tensor."""
    found: dict[str, str] = {}
    for record in dump.records():
        if record.same_as is not None:
            found.setdefault(record.tap, dump.holder(record).tap)
    return found


def _other_weights(a: Record, b: Record, dump_a: Dump, dump_b: Dump) -> bool:
    names = {s.name or "" for r in (a, b) for s in r.inputs if s.kind == "weight"}
    x, y = dump_a.manifest.model.weights, dump_b.manifest.model.weights
    return any(x.get(name) != y.get(name) for name in names)
