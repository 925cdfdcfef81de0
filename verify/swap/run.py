"""Which exchange of tensors moves the output of one run to that of the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np

from verify.compare import exit_codes
from verify.compare.align import Alignment
from verify.compare.elements import floating_values
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.errors import NotComparableError
from verify.formats import get_format
from verify.replay.refuse import check_dumps
from verify.replay.run import Models
from verify.replay.steps import RecordedStep, recorded_steps
from verify.replay.values import Values, both_ways
from verify.swap.bench import LOGITS, Bench, Logits
from verify.swap.result import SwapResult, SwapTarget, Trial
from verify.swap.search import find_set

MOVED = 0.8
"""Share of the distance to the other run's logits that counts as moved across. Rounding that is not
exchanged keeps a rest; a cause that is only half found moves about half."""

Goal = Literal["output", "token"]
"""What has to move across: the token and the logits, or the token alone."""

MOST = 8
"""Members of a set that is looked for; a cause in more places is called spread."""

Progress = Callable[[str], None]


def swap(
    a: Dump,
    b: Dump,
    models: Models,
    *,
    taps: Sequence[str] = (),
    position: int | None = None,
    alone: bool = False,
    most: int = MOST,
    goal: Goal = "output",
    progress: Progress = lambda what: None,
    command: Sequence[str] = (),
) -> SwapResult:
    """Find a smallest set of taps that, taken from A, moves B's output to A's; and the reverse.

    Args:
        taps: globs; only these are exchanged.
        position: of the logits looked at; None: the first flipped choice, else the choice whose
            logits differ most.
        alone: run the step of the choice only, from recorded keys and values, instead of all steps
            up to it: one forward pass a trial, but what earlier steps left in the cache is a tap of
            its own then.
        most: members that a set may have.
        goal: ``output``: the choice becomes the other run's, and its logits move by at least
            :data:`MOVED` of the distance; ``token``: the choice alone, where it flips.

    Raises:
        NotComparableError: no logits in common, no difference, a model that does not reproduce its
            run, or an exchange that cannot be made.
    """
    began = time.perf_counter()
    check_dumps(a, b)
    work = _Swap(a, b, models, taps, position, alone, most, progress, goal)
    return work.run(began, list(command))


@dataclass(frozen=True, slots=True)
class _Choice:
    """A row of logits in both runs."""

    sequence: str
    position: int
    steps: tuple[int, int]
    a: Logits
    b: Logits


class _Swap:
    def __init__(
        self,
        a: Dump,
        b: Dump,
        models: Models,
        globs: Sequence[str],
        position: int | None,
        alone: bool,
        most: int,
        progress: Progress,
        goal: Goal,
    ) -> None:
        self.a, self.b, self.goal = a, b, goal
        self.most, self.progress = most, progress
        alignment, a_for_b, b_for_a = both_ways(a, b)
        self.choice = _choose(alignment, a_for_b, position)
        choice = self.choice
        self.flips = int(choice.a.argmax()) != int(choice.b.argmax())
        self.benches = {
            "B": self._bench(b, models.b or models.a, a_for_b, choice.steps[1], alone),
            "A": self._bench(a, models.a, b_for_a, choice.steps[0], alone),
        }
        every = self.benches["B"].candidates()
        theirs = set(self.benches["A"].candidates())
        self.order = [t for t in every if t in theirs and (not globs or _any(t, globs))]
        self.trials: list[Trial] = []
        self.known: dict[tuple[str, frozenset[str]], bool] = {}
        self.notes: list[str] = []

    def _bench(
        self, dump: Dump, implementation: object, values: Values, step: int, alone: bool
    ) -> Bench:
        steps: list[RecordedStep] = [s for s in recorded_steps(dump) if s.index <= step]
        at = (step, self.choice.sequence, self.choice.position)
        return Bench(implementation, values, steps, at, alone)  # type: ignore[arg-type]

    def run(self, began: float, command: list[str]) -> SwapResult:
        if not self.order:
            raise NotComparableError(
                "no tap of both runs can be exchanged",
                allowed="floating-point taps that both dumps hold in full",
                hint="capture both again with --taps default --level full",
            )
        repeatable = self._baselines()
        undo = self._search("B")
        cause = undo if undo is not None and self._crosses("A", frozenset(undo)) else None
        if undo is not None and cause is None:
            self.notes.append(
                "what undoes the difference in B does not cause it in A on its own: more is needed"
            )
            cause = self._search("A")
        confirmed = undo is not None and cause is not None
        if confirmed:
            confirmed = self._repeat("B", undo) and self._repeat("A", cause)
        self._say_if_only_the_token_moved(undo)
        return self._result(undo, cause, confirmed, repeatable, began, command)

    def _say_if_only_the_token_moved(self, undo: list[str] | None) -> None:
        last = [t for t in self.trials if t.into == "B" and t.crossed and t.taps == len(undo or [])]
        if undo is not None and last and last[-1].moved < MOVED:
            self.notes.append(
                f"the token moves across, the logits go {last[-1].moved:.2f} of the way: many changes "
                "tip such a choice, the cause is spread, and this set is one of several"
            )

    def _baselines(self) -> bool:
        """Both sides without any exchange have to give their recorded logits."""
        for into, own in (("B", self.choice.b), ("A", self.choice.a)):
            logits = self._trial(into, frozenset())
            if not np.array_equal(logits, own, equal_nan=True):
                raise NotComparableError(
                    f"the model at hand does not give the logits that {into} recorded",
                    where=f"{self.choice.sequence} position {self.choice.position}",
                    found=f"largest difference {np.abs(logits - own).max():.3g}",
                    allowed="equal in every bit",
                    hint="use the model, threads and settings of that run; without --alone where "
                    "the keys of earlier steps were not all recorded",
                )
        return True

    def _search(self, into: str) -> list[str] | None:
        if not self._crosses(into, frozenset(self.order)):
            self.notes.append(f"exchanging all {len(self.order)} taps does not move {into} across")
            return None
        found = find_set(self.order, lambda chosen: self._crosses(into, chosen), self.most)
        if found is None:
            self.notes.append(f"in {into} the cause is spread over more than {self.most} taps")
        return found

    def _crosses(self, into: str, taps: frozenset[str]) -> bool:
        if (into, taps) not in self.known:
            self._trial(into, taps)
        return self.known[into, taps]

    def _repeat(self, into: str, taps: list[str] | None) -> bool:
        chosen = frozenset(taps or [])
        before = self.known[into, chosen]
        self._trial(into, chosen)
        return before and self.known[into, chosen]

    def _trial(self, into: str, taps: frozenset[str]) -> Logits:
        bench, choice = self.benches[into], self.choice
        self.progress(f"{into} with {len(taps)} taps of {'A' if into == 'B' else 'B'}")
        before = bench.passes
        logits = bench.run(taps)
        own, other = (choice.b, choice.a) if into == "B" else (choice.a, choice.b)
        apart = float(np.linalg.norm(other - own))
        moved = 1.0 - float(np.linalg.norm(logits - other)) / apart if apart > 0.0 else 0.0
        token = int(logits.argmax())
        crossed = token == int(other.argmax())
        if self.goal == "output" or not self.flips:
            crossed &= moved >= MOVED
        self.known[into, taps] = crossed
        self.trials.append(
            Trial(
                into=into,
                taps=len(taps),
                shown=_shown(taps, self.order),
                moved=moved,
                margin=self._margin(logits),
                token=token,
                crossed=crossed,
                rows_proven=bench.proven,
                passes=bench.passes - before,
            )
        )
        return logits

    def _margin(self, logits: Logits) -> float:
        first, second = int(self.choice.a.argmax()), int(self.choice.b.argmax())
        if first == second:
            second = int(np.argsort(-self.choice.a, kind="stable")[1])
        return float(logits[first] - logits[second])

    def _result(
        self,
        undo: list[str] | None,
        cause: list[str] | None,
        confirmed: bool,
        repeatable: bool,
        began: float,
        command: list[str],
    ) -> SwapResult:
        choice = self.choice
        text = {**self.b.manifest.workload.token_text, **self.a.manifest.workload.token_text}
        tokens = int(choice.a.argmax()), int(choice.b.argmax())
        return SwapResult(
            a=str(self.a.path),
            b=str(self.b.path),
            summary=_summary(undo, cause, confirmed, self.flips),
            target=SwapTarget(
                sequence=choice.sequence,
                position=choice.position,
                step_a=choice.steps[0],
                step_b=choice.steps[1],
                chosen_a=tokens[0],
                chosen_b=tokens[1],
                text_a=text.get(str(tokens[0]), ""),
                text_b=text.get(str(tokens[1]), ""),
            ),
            flips=self.flips,
            undo=undo,
            cause=cause,
            confirmed=confirmed,
            trials=self.trials,
            candidates=len(self.order),
            passes=sum(bench.passes for bench in self.benches.values()),
            budget=2 * math.ceil(math.log2(max(2, len(self.order)))) + 4,
            repeatable=repeatable,
            notes=self.notes,
            seconds=time.perf_counter() - began,
            command=command,
            exit_code=exit_codes.SAME if confirmed else exit_codes.DIFFERENT,
        )


def _any(tap: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(tap, glob) for glob in globs)


def _shown(taps: frozenset[str], order: Sequence[str]) -> str:
    """A set in words: a prefix of the order, or its members."""
    if not taps:
        return "nothing"
    if len(taps) > 3 and frozenset(order[: len(taps)]) == taps:
        return f"everything up to {order[len(taps) - 1]}"
    members = [tap for tap in order if tap in taps]
    if len(members) > 3:
        head = 0
        while head < len(members) and members[head] == order[head]:
            head += 1
        if head > 1:
            return f"everything up to {order[head - 1]}, and {', '.join(members[head:])}"
    return ", ".join(members[:4]) + (f" and {len(members) - 4} more" if len(members) > 4 else "")


def _summary(undo: list[str] | None, cause: list[str] | None, confirmed: bool, flips: bool) -> str:
    what = "the flip" if flips else "the difference of the logits"
    if undo is None:
        return f"No small set of taps moves {what} across."
    sure = "confirmed in reverse and repeated" if confirmed else "not confirmed in reverse"
    if cause is None or cause == undo:
        return f"{', '.join(undo)}: taken from the other run, {what} moves across ({sure})."
    return (
        f"Taking {', '.join(undo)} from A undoes {what} in B; causing it in A takes "
        f"{', '.join(cause)} of B ({sure})."
    )


def _choose(alignment: Alignment, a_for_b: Values, position: int | None) -> _Choice:
    """The row of logits to look at: the first flip, else the largest difference."""
    rows = _logit_rows(alignment, a_for_b)
    if position is not None:
        rows = [row for row in rows if row.position == position]
    unlike = [row for row in rows if not np.array_equal(row.a, row.b, equal_nan=True)]
    if not unlike:
        raise NotComparableError(
            "there is no difference of logits to find the cause of",
            found=f"{len(rows)} rows of logits that both runs recorded for the same text",
            allowed="one that differs",
            hint="capture both with --taps default --level full, B with --tape A",
        )
    flips = [row for row in unlike if row.a.argmax() != row.b.argmax()]
    return flips[0] if flips else max(unlike, key=lambda row: float(np.linalg.norm(row.a - row.b)))


def _logit_rows(alignment: Alignment, a_for_b: Values) -> list[_Choice]:
    found = []
    for number, record in enumerate(alignment.b.records):
        wanted = a_for_b.wanted(number) if record.tap == LOGITS else None
        if wanted is None:
            continue
        start = alignment.b.entries(number).start
        for row, entry in zip(wanted.rows, wanted.entries, strict=True):
            found.append(_row(alignment, start + int(row), int(entry), record))
    return found


def _row(alignment: Alignment, entry_b: int, entry_a: int, record: Record) -> _Choice:
    def logits(index: RowIndex, entry: int) -> tuple[Record, Logits]:
        held = index.records[int(index.record[entry])]
        words = read_entries(index, np.array([entry]))
        return held, floating_values(words, get_format(held.dtype))[0]

    held_a, a = logits(alignment.a, entry_a)
    _, b = logits(alignment.b, entry_b)
    index = alignment.b
    return _Choice(
        index.sequences[int(index.sequence[entry_b])],
        int(index.position[entry_b]),
        (held_a.step, record.step),
        a,
        b,
    )
