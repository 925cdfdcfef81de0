"""Splitting every difference of two runs into what an operation adds and what it inherits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from verify.bisect.moves import MOVES
from verify.compare import exit_codes
from verify.compare.index import RowIndex
from verify.dumps.format import Dump
from verify.replay.cases import CaseKeeper
from verify.replay.fits import describe_cases
from verify.replay.forward import run_forced, watch
from verify.replay.judge import judge
from verify.replay.judgement import Judgement, Sides
from verify.replay.parts import Parts
from verify.replay.refuse import check_dumps
from verify.replay.result import ReplayResult, RowParts, Status, TapReplay
from verify.replay.sink import GIVEN, Sink
from verify.replay.status import conclude
from verify.replay.steps import Implementation, RecordedStep, recorded_steps
from verify.replay.values import Values, both_ways, itself

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Models:
    """The implementations that recorded the two runs; ``b`` None: the same one as ``a``."""

    a: Implementation
    b: Implementation | None = None


@dataclass(slots=True)
class Pass:
    """One forced forward: what differed at each tap before it was overwritten, and the cases."""

    parts: dict[str, Parts]
    keeper: CaseKeeper | None
    notes: list[str] = field(default_factory=list)


def replay(
    a: Dump,
    b: Dump,
    models: Models,
    *,
    taps: Sequence[str] = (),
    reverse: bool = True,
    progress: Progress = lambda what: None,
    command: Sequence[str] = (),
) -> ReplayResult:
    """Run each implementation on the other run's recorded inputs, at every tap in one pass.

    B's implementation runs B's calls (same chunks, same batch) while every tap is overwritten with
    A's rows: what it computes before that is f_B(inputs of A). Then local = f_B(inputs of A) - A,
    inherited = B - f_B(inputs of A). Each implementation also runs on its own run's inputs, and has
    to give that run's bits there; else the replay says so instead of blaming an operation.

    Args:
        taps: globs; only these are reported. All taps are overwritten all the same.
        reverse: also A's implementation on B's inputs.
        progress: told what is going on.

    Raises:
        NotComparableError: a dump lacks what a replay needs, or a model is not that of its run.
        CorruptDumpError: a dump is not what was stored.
    """
    began = time.perf_counter()
    check_dumps(a, b)
    work = _Work(a, b, models, progress)
    work.run(reverse)
    found = work.taps(taps)
    differing = [tap for tap in found if tap.status is not Status.EQUAL]
    return ReplayResult(
        a=str(a.path),
        b=str(b.path),
        summary=_summary(differing),
        taps=differing,
        equal_taps=len(found) - len(differing),
        faithful=not any(tap.status is Status.UNFAITHFUL for tap in differing),
        closure_error=max((tap.closure_error for tap in differing), default=0.0),
        passes=work.passes,
        steps=len(work.steps["b"]),
        seconds=time.perf_counter() - began,
        notes=work.notes,
        command=list(command),
        exit_code=_exit_code(differing),
    )


class _Work:
    def __init__(self, a: Dump, b: Dump, models: Models, progress: Progress) -> None:
        self.progress = progress
        self.notes: list[str] = []
        self.passes = 0
        self.impl = {"a": models.a, "b": models.b or models.a}
        self.alignment, self.a_for_b, self.b_for_a = both_ways(a, b)
        self.index: dict[str, RowIndex] = {"a": self.alignment.a, "b": self.alignment.b}
        self.steps: dict[str, list[RecordedStep]] = {
            "a": recorded_steps(a),
            "b": recorded_steps(b),
        }
        self.moved = _moved(self.alignment.a) & _moved(self.alignment.b)
        self.own: dict[str, Pass] = {}
        self.across: Pass | None = None
        self.back: Pass | None = None

    def run(self, reverse: bool) -> None:
        for side in "ab":
            self.progress(f"{side.upper()}'s model on its own inputs")
            self.own[side] = self._pass(side, itself(self.index[side]), keep=False)
        self.progress("B's model on A's inputs")
        self.across = self._pass("b", self.a_for_b, keep=True)
        if reverse:
            self.progress("A's model on B's inputs")
            self.back = self._pass("a", self.b_for_a, keep=True)
        self.progress("holding local parts against FP64")

    def _pass(self, side: str, values: Values, *, keep: bool) -> Pass:
        keeper = CaseKeeper(values) if keep else None
        sink = Sink(values, watch=keeper)
        watched = watch(self.impl[side], sink)
        if keeper is not None:
            keeper.watched = watched
        run_forced(self.impl[side], self.steps[side], sink, watched)
        self.passes += 1
        self.notes += [note for note in dict.fromkeys(sink.notes) if note not in self.notes]
        return Pass(sink.parts, keeper, sink.notes)

    def taps(self, globs: Sequence[str]) -> list[TapReplay]:
        """Those that match a glob, all without any. The FP64 references of the others, which take
        longer than the passes, are not computed."""
        assert self.across is not None
        return [
            self._tap(parts)
            for tap, parts in self.across.parts.items()
            if tap not in GIVEN and (not globs or any(fnmatchcase(tap, g) for g in globs))
        ]

    def _tap(self, parts: Parts) -> TapReplay:
        tap = parts.tap
        back = self.back.parts.get(tap) if self.back is not None else None
        faithful = {
            side: own.parts[tap].local_rows == 0 if tap in own.parts else None
            for side, own in self.own.items()
        }
        judged = self._judge(tap)
        status, reason = conclude(parts, back, faithful, judged)
        worst = max(judged, key=lambda j: (_RANK[j.outcome], j.used), default=None)
        fits, held_by = self._describe(tap) if status not in _UNDESCRIBED else ([], "")
        return TapReplay(
            tap=tap,
            order=parts.order,
            layer=_layer(tap),
            status=status,
            reason=reason,
            rows=parts.rows,
            differing_rows=parts.differing_rows,
            local_rows=parts.local_rows,
            local=parts.relative(parts.local_sq),
            inherited=parts.relative(parts.inherited_sq) if parts.compared else None,
            total=parts.relative(parts.total_sq) if parts.compared else None,
            largest_local=parts.largest_local,
            closure_error=parts.closure,
            local_reverse=None if back is None else back.relative(back.local_sq),
            faithful_a=faithful["a"],
            faithful_b=faithful["b"],
            op="" if worst is None else worst.op,
            checked_rows=sum(j.rows for j in judged),
            error_a=None if worst is None else worst.error_a,
            error_b=None if worst is None else worst.error_b,
            closer="" if worst is None else worst.closer,
            budget_used=None if worst is None else worst.used,
            worst=[
                RowParts(
                    sequence=row.sequence,
                    position=row.position,
                    step=row.step,
                    local=row.local,
                    inherited=row.inherited,
                    total=row.total,
                )
                for row in parts.worst
            ],
            fits=fits,
            held_by=held_by,
        )

    def _describe(self, tap: str) -> tuple[list[str], str]:
        keeper = None if self.across is None else self.across.keeper
        return describe_cases(keeper.cases.get(tap, [])) if keeper is not None else ([], "")

    def _judge(self, tap: str) -> list[Judgement]:
        """All cases of a tap, in both directions; empty where one of them is beyond the reference."""
        names = [_implementation(self.index[side], tap) for side in "ab"]
        moving = tap in self.moved
        found: list[Judgement] = []
        for made, wanted_is_a in ((self.across, True), (self.back, False)):
            if made is None or made.keeper is None:
                continue
            for case in made.keeper.cases.get(tap, []):
                judged = judge(case, Sides(wanted_is_a, names[0], names[1], moving))
                if judged is None:
                    return []
                found.append(judged)
        return found


_UNDESCRIBED = (Status.EQUAL, Status.INHERITED, Status.ROUNDING)
"""A pattern in what is rounding, or in nothing, says nothing."""

_RANK = {"EXPLAINED": 0, "PRECISION": 1, "SUSPECT": 2, "DEFECT": 3}


def _implementation(index: RowIndex, tap: str) -> str:
    record = next((record for record in index.records if record.tap == tap), None)
    return "" if record is None else str(record.attributes.get("implementation", ""))


def _moved(index: RowIndex) -> set[str]:
    """Taps whose values every call only moved from where they were recorded before."""
    computed = {r.tap for r in index.records if not r.ops or not MOVES.issuperset(r.ops)}
    return {record.tap for record in index.records} - computed


def _layer(tap: str) -> int | None:
    return next((int(part) for part in tap.split(".") if part.isdigit()), None)


def _summary(taps: list[TapReplay]) -> str:
    if not taps:
        return "Nothing differs, and neither implementation adds anything on the other's inputs."
    counts = {status: sum(tap.status is status for tap in taps) for status in Status}
    said = [f"{count} {status.lower()}" for status, count in counts.items() if count]
    blamed = [tap.tap for tap in taps if tap.status is Status.DEFECT]
    first = f"; no rounding explains what {blamed[0]} adds" if blamed else ""
    return f"{len(taps)} taps differ: {', '.join(said)}{first}."


def _exit_code(taps: list[TapReplay]) -> int:
    harmless = (Status.EQUAL, Status.INHERITED, Status.ROUNDING)
    return exit_codes.SAME if all(t.status in harmless for t in taps) else exit_codes.DIFFERENT
