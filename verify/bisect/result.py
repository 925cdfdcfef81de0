"""What a bisect finds: one result type, rendered by verify.report."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from verify.compare.result import Comparison, RowRef


class Verdict(StrEnum):
    """The verdicts, from harmless to worst; docs/verdicts.md is the table behind them."""

    IDENTICAL = "IDENTICAL"
    ROUNDING = "ROUNDING"
    INCOMPLETE = "INCOMPLETE"
    NOT_COMPARABLE = "NOT_COMPARABLE"
    UNRESOLVED = "UNRESOLVED"
    NON_REPEATABLE = "NON_REPEATABLE"
    POST_LOGITS = "POST_LOGITS"
    PRECISION = "PRECISION"
    OVERFLOW = "OVERFLOW"
    DEFECT = "DEFECT"


class Finding(msgspec.Struct, kw_only=True):
    """One statement of the report: a verdict with its reasons and what would settle it."""

    verdict: Verdict
    title: str
    reasons: list[str]
    taps: list[str] = msgspec.field(default_factory=list)
    support: str = ""
    """Layers, rows, heads, channels, positions concerned, in words."""
    numbers: dict[str, float | int | str] = msgspec.field(default_factory=dict)
    sizes: dict[str, float] = msgspec.field(default_factory=dict)
    """Tap -> size of what it adds itself: relative L2 over its rows, where that was measured."""
    settle: list[str] = msgspec.field(default_factory=list)
    """Commands or captures that would decide what is open."""


class Confounder(msgspec.Struct, kw_only=True):
    """A setting, library or machine fact that differs between the runs."""

    name: str
    a: str
    b: str
    weight: str
    """``declared`` (what the user set out to compare), ``likely``, ``possible`` or ``unlikely``."""
    note: str = ""
    subject: str = ""
    """The thing that changed: several confounders may tell of one."""


class TopToken(msgspec.Struct, kw_only=True):
    """A candidate of one position with its logit."""

    id: int
    text: str
    logit: float


class TokenPosition(msgspec.Struct, kw_only=True):
    """Next-token choice at one position in both runs. Logit steps are ULPs of the logits' dtype at
    the size of the larger top logit."""

    sequence: str
    position: int
    """Position of the row whose logits chose the token."""
    index: int
    """Number of the generated token, from 0."""
    a: list[TopToken]
    b: list[TopToken]
    chosen_a: int
    chosen_b: int
    margin_a: float
    margin_b: float
    margin_a_steps: float
    margin_b_steps: float
    tie_a: bool
    tie_b: bool
    logit_shift: float
    """max |b - a| over the vocabulary."""
    pair_shift: float
    """(b[x] - b[y]) - (a[x] - a[y]) for A's choice x against B's choice y (against A's runner-up
    where the choices agree): what has to exceed A's margin for a flip."""
    same_context: bool
    """All tokens before were equal, so that the difference is numeric and not a follow-up."""
    flip_chance: float | None = None
    """Phi(-A's margin / sigma), sigma of :class:`Flips`: how often rounding of the size that was
    measured on these two runs flips such a choice."""
    closeness: str = ""
    """``exact tie``; A's margin against sigma: ``near tie`` up to 3, ``unlikely`` up to 6,
    ``beyond rounding`` above; empty where it was not measured."""


class Flips(msgspec.Struct, kw_only=True):
    """Observed against expected flips, over choices with the same text before them."""

    positions: int
    """Choices whose logits were compared."""
    observed: int
    """Of these, how many have another best candidate in B than in A."""
    expected: float
    """Sum of Phi(-A's margin / sigma)."""
    sigma: float
    """rms over all positions of how A's leading candidates moved against its first."""
    p_more: float
    """Poisson chance of at least the observed count if ``expected`` were right."""
    ties: int
    """Exact ties in A."""
    sure: list[int]
    """Flips at margins above 6 sigma, as numbers into ``tokens``: leads to a defect."""
    left_out: int
    """Choices without a margin that is a number."""


class Origin(msgspec.Struct, kw_only=True):
    """A tap that differs while every recorded input is equal, or the first one observed."""

    tap: str
    step_a: int
    step_b: int
    order: int
    proven: bool
    """False: some input was not recorded, so this is only "first observed at"."""
    inputs: list[str]
    """Taps, weights and values that it was computed from, all equal."""
    interval: list[str]
    """Operations between those inputs and the tap."""
    rows: str
    """Which of its rows differ, in words."""
    first: RowRef | None
    measure: dict[str, float | int | str | None]
    attributes_a: dict[str, Any] = msgspec.field(default_factory=dict)
    attributes_b: dict[str, Any] = msgspec.field(default_factory=dict)
    judged: str = ""
    """On what grounds the inputs count as equal, or what was missing."""
    fits: list[str] = msgspec.field(default_factory=list)
    """What the difference is, each with its residual, for example a cast to float8_e4m3fn."""


class GrowthPoint(msgspec.Struct, kw_only=True):
    """Size of the difference at one tap: along the depth of the model."""

    tap: str
    layer: int | None
    order: int
    relative_l2: float
    max_ulp: int | None
    differing_share: float


class PositionPoint(msgspec.Struct, kw_only=True):
    """Size of the difference at one position, over the residual stream."""

    sequence: str
    position: int
    relative_l2: float


class Heatmap(msgspec.Struct, kw_only=True):
    """Relative L2 per (tap, position): ``values[i][j]``, None where a cell was not compared, 0.0
    where it is bitwise equal."""

    taps: list[str]
    positions: list[int]
    values: list[list[float | None]]
    sequence: str


class BisectResult(msgspec.Struct, kw_only=True):
    """The result of ``verify bisect A B``."""

    verdict: Verdict
    summary: str
    findings: list[Finding]
    confounders: list[Confounder]
    first_token: TokenPosition | None
    tokens: list[TokenPosition]
    origins: list[Origin]
    """In A's execution order."""
    growth: list[GrowthPoint]
    positions: list[PositionPoint]
    heatmap: list[Heatmap]
    comparison: Comparison
    not_compared: list[str]
    exit_code: int
    command: list[str] = msgspec.field(default_factory=list)
    flips: Flips | None = None
    """None where no logits were compared."""
    changed_at_once: str = ""
    """A sentence where more than one thing changed that may matter, so that none can be blamed."""
    schema: str = "verify-bisect/1"
