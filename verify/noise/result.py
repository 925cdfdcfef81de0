"""What repeats of one configuration show, stored as ``noise.json``."""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = "verify-noise/1"


class TapNoise(msgspec.Struct, kw_only=True):
    """One tap over all runs of a group, each compared with the first run."""

    tap: str
    order: int
    """Place of its first record in the first run's execution order."""
    differing_runs: int
    """Runs in which any of its rows differs from the first run's."""
    differing_rows: int
    """Largest number of differing rows in one run."""
    max_ulp: int | None
    """Largest ULP distance; None without words or an order."""
    relative_l2: float
    """Largest relative L2 distance; NaN where neither words nor sketches were kept."""


class FlipRate(msgspec.Struct, kw_only=True):
    """How often the choice at one position was another one than in the first run."""

    sequence: str
    position: int
    flips: int
    trials: int
    """Runs whose tokens before this position are those of the first run."""
    low: float
    high: float
    """95 % interval of the rate (Clopper and Pearson)."""


class NoiseGroup(msgspec.Struct, kw_only=True):
    """Runs that differ from the first run in one thing, or in nothing."""

    name: str
    """``repeats``, or the changed option: ``threads 2``."""
    runs: list[str]
    taps: list[TapNoise]
    """Taps that vary, in execution order; empty where all runs are bitwise equal."""
    flips: list[FlipRate]
    """Positions at which a choice flipped."""
    positions: int
    """Positions at which choices were compared."""
    unmatched: int
    """Rows without a counterpart, over all runs."""

    @property
    def repeats(self) -> int:
        """Runs compared with the first."""
        return len(self.runs)

    @property
    def equal(self) -> bool:
        """Every row of every run has a counterpart and is bitwise equal to it."""
        return not self.taps and not self.flips and not self.unmatched


class NoiseResult(msgspec.Struct, kw_only=True):
    """The result of ``verify noise``."""

    base: str
    """The first run."""
    workload: str
    """Digest of prompts and tape, by which ``bisect --noise`` knows whose noise this is."""
    weights: str
    settings: dict[str, Any]
    groups: list[NoiseGroup]
    """The repeats first."""
    summary: str
    exit_code: int
    """0: every repeat is bitwise equal; 1: not."""
    command: list[str] = msgspec.field(default_factory=list)
    schema: str = SCHEMA

    @property
    def repeats(self) -> NoiseGroup:
        """The runs in which nothing was changed."""
        return self.groups[0]

    @property
    def repeatable(self) -> bool:
        """All repeats are bitwise equal, and there was at least one."""
        return self.repeats.equal and self.repeats.repeats > 0
