"""The search itself: trials on two benches, a smallest set on each side, and its confirmation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

from verify.compare import exit_codes
from verify.dumps.format import Dump
from verify.errors import NotComparableError
from verify.swap.bench import Logits
from verify.swap.choose import Choice
from verify.swap.result import SwapResult, SwapTarget, Trial
from verify.swap.search import find_set
from verify.swap.words import shown, summary

MOVED = 0.8
"""Share of the distance to the other run's logits that counts as moved across. Rounding that is not
exchanged keeps a rest; a cause that is only half found moves about half."""

Goal = Literal["output", "token"]
"""What has to move across: the token and the logits, or the token alone."""

MOST = 8
"""Members of a set that is looked for; a cause in more places is called spread."""

Progress = Callable[[str], None]


class TrialBench(Protocol):
    """One side: its model, run with members of the other side in place of its own."""

    passes: int
    proven: int

    def run(self, chosen: frozenset[str]) -> Logits:
        """The logits of the choice with exactly these members exchanged."""
        ...


class Hunt:
    """Looks for the members whose exchange moves the output.

    Args:
        dumps: A and B.
        choice: whose logits are looked at.
        benches: ``A`` and ``B``.
        order: members that may be exchanged, in execution order.
        what: what a member is, for reports: ``tap``.
        most: members that a set may have.
    """

    def __init__(
        self,
        dumps: tuple[Dump, Dump],
        choice: Choice,
        benches: Mapping[str, TrialBench],
        order: Sequence[str],
        *,
        what: str = "tap",
        most: int = MOST,
        goal: Goal = "output",
        progress: Progress = lambda text: None,
    ) -> None:
        self.a, self.b = dumps
        self.choice, self.benches, self.order = choice, benches, list(order)
        self.what, self.most, self.goal, self.progress = what, most, goal, progress
        self.began = time.perf_counter()
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self.known: dict[tuple[str, frozenset[str]], bool] = {}

    def run(self, command: Sequence[str] = ()) -> SwapResult:
        """Both baselines, the search from B's side, and the reverse.

        Raises:
            NotComparableError: a model does not give its run's logits, or an exchange that did not
                take place.
        """
        self._baselines()
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
        return self._result(undo, cause, confirmed, list(command))

    def try_each(self) -> dict[str, list[str]]:
        """Every member alone, in both directions: side -> members that move its output across."""
        alone = {
            into: [m for m in self.order if self._crosses(into, frozenset([m]))] for into in "BA"
        }
        for into, verb in (("A", "cause"), ("B", "undo")):
            named = ", ".join(alone[into]) or "none"
            self.notes.append(
                f"{self.what}s that {verb} it alone: {named} ({len(alone[into])} of {len(self.order)})"
            )
        return alone

    def _say_if_only_the_token_moved(self, undo: list[str] | None) -> None:
        last = [t for t in self.trials if t.into == "B" and t.crossed and t.taps == len(undo or [])]
        if undo is not None and last and last[-1].moved < MOVED:
            self.notes.append(
                f"the token moves across, the logits go {last[-1].moved:.2f} of the way: many changes "
                "tip such a choice, the cause is spread, and this set is one of several"
            )

    def _baselines(self) -> None:
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

    def _search(self, into: str) -> list[str] | None:
        if not self._crosses(into, frozenset(self.order)):
            self.notes.append(
                f"exchanging all {len(self.order)} {self.what}s does not move {into} across"
            )
            return None
        found = find_set(self.order, lambda chosen: self._crosses(into, chosen), self.most)
        if found is None:
            self.notes.append(
                f"in {into} the cause is spread over more than {self.most} {self.what}s"
            )
        return found

    def _crosses(self, into: str, members: frozenset[str]) -> bool:
        if (into, members) not in self.known:
            self._trial(into, members)
        return self.known[into, members]

    def _repeat(self, into: str, members: list[str] | None) -> bool:
        chosen = frozenset(members or [])
        before = self.known[into, chosen]
        self._trial(into, chosen)
        return before and self.known[into, chosen]

    def _trial(self, into: str, members: frozenset[str]) -> Logits:
        bench, choice = self.benches[into], self.choice
        self.progress(f"{into} with {len(members)} {self.what}s of {'A' if into == 'B' else 'B'}")
        before = bench.passes
        logits = bench.run(members)
        own, other = (choice.b, choice.a) if into == "B" else (choice.a, choice.b)
        apart = float(np.linalg.norm(other - own))
        moved = 1.0 - float(np.linalg.norm(logits - other)) / apart if apart > 0.0 else 0.0
        token = int(logits.argmax())
        crossed = token == int(other.argmax())
        if self.goal == "output" or not choice.flips:
            crossed &= moved >= MOVED
        self.known[into, members] = crossed
        self.trials.append(
            Trial(
                into=into,
                taps=len(members),
                shown=shown(members, self.order),
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
        self, undo: list[str] | None, cause: list[str] | None, confirmed: bool, command: list[str]
    ) -> SwapResult:
        return SwapResult(
            a=str(self.a.path),
            b=str(self.b.path),
            summary=summary(undo, cause, confirmed, self.choice.flips),
            target=self._target(),
            flips=self.choice.flips,
            undo=undo,
            cause=cause,
            confirmed=confirmed,
            trials=self.trials,
            candidates=len(self.order),
            passes=sum(bench.passes for bench in self.benches.values()),
            budget=2 * math.ceil(math.log2(max(2, len(self.order)))) + 4,
            repeatable=True,
            notes=self.notes,
            seconds=time.perf_counter() - self.began,
            command=command,
            exit_code=exit_codes.SAME if confirmed else exit_codes.DIFFERENT,
            exchanged=self.what,
        )

    def _target(self) -> SwapTarget:
        choice = self.choice
        text = {**self.b.manifest.workload.token_text, **self.a.manifest.workload.token_text}
        tokens = int(choice.a.argmax()), int(choice.b.argmax())
        return SwapTarget(
            sequence=choice.sequence,
            position=choice.position,
            step_a=choice.steps[0],
            step_b=choice.steps[1],
            chosen_a=tokens[0],
            chosen_b=tokens[1],
            text_a=text.get(str(tokens[0]), ""),
            text_b=text.get(str(tokens[1]), ""),
        )
