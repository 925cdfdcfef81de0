"""What a swap finds: sets of taps that move the output across, rendered by verify.report."""

from __future__ import annotations

import msgspec


class Trial(msgspec.Struct, kw_only=True):
    """One forward with some taps taken from the other run."""

    into: str
    """``B``: B's model with taps of A; ``A``: the reverse."""
    taps: int
    """How many taps were exchanged."""
    shown: str
    """Which ones, in words."""
    moved: float
    """Share of the distance between the two runs' logits (L2) that the output moved: 0 its own run,
    1 the other one."""
    margin: float
    """Logit of A's choice above B's choice (above A's runner-up where the choices agree)."""
    token: int
    """The choice of this trial."""
    crossed: bool
    rows_proven: int
    """Rows that the readers were seen to have read from the other run, by digest."""
    passes: int
    """Forward passes that it took."""


class SwapTarget(msgspec.Struct, kw_only=True):
    """The choice whose cause is looked for."""

    sequence: str
    position: int
    step_a: int
    step_b: int
    chosen_a: int
    chosen_b: int
    text_a: str = ""
    text_b: str = ""


class SwapResult(msgspec.Struct, kw_only=True):
    """The result of ``verify swap A B``."""

    a: str
    b: str
    summary: str
    target: SwapTarget
    flips: bool
    undo: list[str] | None
    """A smallest set of taps that, taken from A, moves B's output to A's; None: not found."""
    cause: list[str] | None
    """A smallest set that, taken from B, moves A's output to B's; None: not found."""
    confirmed: bool
    """``cause`` was tried, moved A's output across, and both came out the same when repeated."""
    trials: list[Trial]
    candidates: int
    passes: int
    budget: int
    """2 log2(candidates) + 4: what a single cause should take, in trials."""
    repeatable: bool
    notes: list[str]
    seconds: float
    command: list[str] = msgspec.field(default_factory=list)
    exit_code: int = 0
    exchanged: str = "tap"
    """What a member of a set is: a ``tap``, or a ``part`` of the implementation."""
    schema: str = "verify-swap/1"
