"""Opening and closing steps: by the caller, or with each outermost call of the root module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verify.dumps.capture.positions import PositionTracker, Step
from verify.dumps.capture.step_arguments import StepArguments, read_step_arguments
from verify.errors import UsageError


class StepControl:
    """The step that is open, if one is.

    Args:
        names: sequence ids of the workload, by batch row.
        hugging_face: the model follows the conventions of transformers.
        opened, closed: called when a step begins and when it has ended.
    """

    def __init__(
        self,
        names: Sequence[str],
        hugging_face: bool,
        opened: Callable[[Step], None],
        closed: Callable[[], None],
    ) -> None:
        self.step: Step | None = None
        self.only_asked = False
        """Calls of the root outside of the caller's steps are no steps."""
        self._tracker = PositionTracker()
        self._names = list(names)
        self._hugging_face = hugging_face
        self._opened = opened
        self._closed = closed
        self._asked: StepArguments | None = None
        self._depth = 0

    def ask(self, given: StepArguments) -> None:
        """The caller delimits a step; it opens at once when its positions are given, else with
        the first call of the root."""
        if self._asked is not None or self.step is not None:
            raise UsageError("a step is open already", hint="close it before the next one begins")
        self._asked = given
        if given.positions is not None:
            self._open(given)

    def release(self) -> None:
        """The caller's step ends."""
        self._asked = None
        self._close()

    def root_entered(self, call: Mapping[str, Any]) -> None:
        """The root module is called with these arguments."""
        self._depth += 1
        if self.step is None and not (self.only_asked and self._asked is None):
            given = self._asked or StepArguments()
            self._open(read_step_arguments(given, call, self._tracker, self._hugging_face))

    def root_left(self) -> None:
        """The call of the root ended, well or with an exception."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._asked is None:
            self._close()

    def _open(self, given: StepArguments) -> None:
        assert given.positions is not None
        if given.positions.ndim == 1:
            owner = given.sequences or [None] * len(given.positions)
            self.step = self._tracker.begin_flat(given.positions, owner, kept=given.kept)
        else:
            names = [str(name) for name in given.sequences or ()]
            self.step = self._tracker.begin(
                given.positions,
                names or self._default_names(given.positions.shape[0]),
                cached=given.cached,
                kept=given.kept,
            )
        self._opened(self.step)

    def _default_names(self, batch: int) -> list[str]:
        if len(self._names) == batch:
            return self._names
        return [f"sequence#{row}" for row in range(batch)]

    def _close(self) -> None:
        if self.step is not None:
            self.step = None
            self._closed()
