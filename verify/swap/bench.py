"""One side of a swap: its model, its steps up to the choice, and trials with taps of the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.compare.elements import floating_values
from verify.dumps.capture.tensor_words import row_matrix
from verify.dumps.format.materialise import Materialiser
from verify.errors import NotComparableError
from verify.formats import get_format
from verify.replay.session import Watched
from verify.replay.sink import GIVEN, Sink
from verify.replay.steps import Implementation, RecordedStep, state_before
from verify.replay.values import Values

LOGITS = "logits"

Logits = NDArray[np.float64]


@dataclass(slots=True)
class _TrialSink(Sink):
    """Also keeps the logits of one row."""

    at: tuple[int, str, int] = (0, "", 0)
    """Step, sequence and position of the row."""
    logits: Logits | None = None

    def record(self, tap: str, tensor: torch.Tensor, **more: Any) -> int:
        # Not the bare super(): a dataclass with slots is another class than the one written here.
        found = Sink.record(self, tap, tensor, **more)
        if tap == LOGITS and self._step is not None and self._step.index == self.at[0]:
            number = self.values.number(self.at[0], tap, 0)
            if number is not None:
                record = self.values.record(number)
                rows = self.values.schedule.dump.rows(record)
                match = np.flatnonzero(
                    (rows.sequence == self.at[1]) & (rows.position == self.at[2])
                )
                words = row_matrix(tensor, record.axes)[match]
                self.logits = floating_values(words, get_format(record.dtype))[0]
        return found


@dataclass(slots=True)
class Bench:
    """Runs trials on one side.

    Args:
        implementation: of the run whose steps are run.
        values: rows of the other run for the records of this one.
        steps: of this run, up to the one that makes the choice.
        at: step, sequence and position of the logits looked at.
        alone: run the last step only, from the recorded keys and values before it.
    """

    implementation: Implementation
    values: Values
    steps: list[RecordedStep]
    at: tuple[int, str, int]
    alone: bool = False
    passes: int = 0
    proven: int = 0
    _state: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)

    def candidates(self) -> list[str]:
        """Taps that can be exchanged, in execution order: floating point, both runs have words."""
        found: dict[str, None] = {}
        steps = {step.index for step in self._run_steps()}
        for number, record in enumerate(self.values.schedule.records):
            if record.step not in steps or record.tap in GIVEN or record.tap in found:
                continue
            if record.kept == "same" or get_format(record.dtype).kind != "float":
                continue
            if self.values.wanted(number) is not None:
                found[record.tap] = None
        return list(found)

    def run(self, taps: frozenset[str]) -> Logits:
        """The logits with exactly these taps from the other run.

        Raises:
            NotComparableError: an exchange did not take place, or there are no logits.
        """
        sink = _TrialSink(self.values, force=taps.__contains__, measured=lambda tap: False)
        sink.at = self.at
        schedule = self.values.schedule
        seen = frozenset(record.tap for record in schedule.records)
        names = [s.id for s in schedule.dump.manifest.workload.sequences]
        watched = Watched(self.implementation.model, sink, seen, names)
        runner = self.implementation.runner()
        steps = self._run_steps()
        first = steps[0]
        runner.reset(first, self._state_for(first, taps))
        watched.start_at(first.index, first.keys.positions[:, : first.held])
        with self.implementation.ready(), watched.entered_model():
            for step in steps:
                runner.run(step, watched)
        self.passes += len(steps)
        self._prove(sink, taps)
        if sink.logits is None:
            raise NotComparableError(
                "the step has no recorded logits to look at",
                where=f"step {self.at[0]}",
                hint="capture again with --taps default --level full",
            )
        return sink.logits

    def _prove(self, sink: Sink, taps: frozenset[str]) -> None:
        """Every reader of an exchanged tap saw the other run's bits in every row there is."""
        self.proven = sum(sink.proofs.get(tap, 0) for tap in taps)
        for tap in taps:
            asked, seen = sink.asked.get(tap, 0), sink.proofs.get(tap, 0)
            if not asked or seen != asked:
                raise NotComparableError(
                    "a swap did not take place",
                    where=tap,
                    found=f"{seen} of {asked} rows were read from the other run",
                    allowed="all of them",
                    hint="exchange another tap: this tensor is shared, expanded or not passed on",
                )

    def _run_steps(self) -> list[RecordedStep]:
        return self.steps[-1:] if self.alone else self.steps

    def _state_for(self, first: RecordedStep, taps: frozenset[str]) -> dict[str, torch.Tensor]:
        """Keys and values before the first step; those of exchanged taps are the other run's."""
        if not first.held:
            return {}
        if not self._state:
            own = self.values.schedule.dump
            self._state["own"] = state_before(own, Materialiser(own), first, {})
            other = self.values.values.dump
            self._state["other"] = state_before(other, Materialiser(other), first, {})
        own_state, other_state = self._state["own"], self._state["other"]
        return {tap: (other_state if tap in taps else own_state)[tap] for tap in own_state}
