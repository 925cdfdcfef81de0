"""What a replay finds: the parts of every difference, rendered by verify.report."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Status(StrEnum):
    """What a tap adds itself, from harmless to worst."""

    EQUAL = "EQUAL"
    """The runs agree here, and so does the implementation on the other run's inputs."""
    INHERITED = "INHERITED"
    """The same inputs give the same bits in both implementations: all of it comes from above."""
    ROUNDING = "ROUNDING"
    """The local part is within what the roundings of both sides allow."""
    UNCHECKED = "UNCHECKED"
    """There is a local part, and no reference that knows the operation."""
    PRECISION = "PRECISION"
    """The sides follow different conventions, each explained by its own."""
    SUSPECT = "SUSPECT"
    """Inside the bound, but not as rounding would have it."""
    UNFAITHFUL = "UNFAITHFUL"
    """The model at hand does not give the bits of the run on the run's own inputs."""
    DEFECT = "DEFECT"
    """No rounding explains the local part."""


class RowParts(msgspec.Struct, kw_only=True):
    """Norms (L2 over one row) of the parts of its difference."""

    sequence: str
    position: int
    step: int
    local: float
    inherited: float | None
    total: float | None


class TapReplay(msgspec.Struct, kw_only=True):
    """One tap: total = local + inherited, with local = f_B(inputs of A) - A.

    Sizes are L2 over all rows, relative to A's values. None: that pass was not run.
    """

    tap: str
    order: int
    layer: int | None
    status: Status
    reason: str
    rows: int
    """Rows that both runs recorded, in B's calls."""
    differing_rows: int
    local_rows: int
    """Rows at which B's implementation gives other bits on A's inputs."""
    local: float
    inherited: float | None
    total: float | None
    largest_local: float
    """Largest |f_B(inputs of A) - A| of an element."""
    closure_error: float
    """Largest |total - local - inherited| of an element, relative to the tap's largest value."""
    local_reverse: float | None = None
    """The same with A's implementation on B's inputs, relative to B's values."""
    faithful_a: bool | None = None
    faithful_b: bool | None = None
    """Whether each side's model gives its own run's bits on its own run's inputs."""
    op: str = ""
    """The operation that the reference computed; empty where it computed none."""
    checked_rows: int = 0
    """Rows that the reference judged."""
    error_a: float | None = None
    error_b: float | None = None
    """Relative L2 distances of both sides from FP64 of the same operation on the same inputs."""
    closer: str = ""
    """``A``, ``B`` or ``equal``."""
    budget_used: float | None = None
    worst: list[RowParts] = msgspec.field(default_factory=list)
    fits: list[str] = msgspec.field(default_factory=list)
    """What the local part is, each with its residual; empty where nothing fits."""
    held_by: str = ""
    """The heads that hold 99 % of the local part, where those are few."""


class ReplayResult(msgspec.Struct, kw_only=True):
    """The result of ``verify replay A B``."""

    a: str
    b: str
    summary: str
    taps: list[TapReplay]
    """Every tap at which something differs, in B's execution order."""
    equal_taps: int
    faithful: bool
    closure_error: float
    """The largest of all taps."""
    passes: int
    """Runs over all steps."""
    steps: int
    seconds: float
    notes: list[str]
    command: list[str] = msgspec.field(default_factory=list)
    exit_code: int = 0
    schema: str = "verify-replay/1"
