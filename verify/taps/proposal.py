"""What `verify taps` finds: lines of a map with what they rest on, and what stays open."""

from __future__ import annotations

from typing import Literal

import msgspec

from verify.taps.types import TapMap, TapRule

Confidence = Literal["equal", "rounding", "near", "shape"]
"""Every value that was looked at is equal; they differ as rounding lets them; they differ by more,
and nothing else is as near; or only length, order and name speak for it, and no value does."""


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """One rule, and why."""

    rule: TapRule
    taps: int
    """Taps of A that it presents."""
    confidence: Confidence
    distance: float | None
    """||a - b|| / max(||a||, ||b||) in the layer that fits best; None if no values were compared."""
    basis: str
    """What was compared: ``words``, ``digests``, ``sketches`` or nothing."""
    rows: int
    layers: int
    worst: float | None
    """The largest distance of a layer that was looked at."""
    next_best: float | None
    """Distance of the best one that values tell from it."""
    alike: int
    """Candidates that values cannot tell apart; above 1 the order of execution decided."""
    evidence: str
    """The same in words."""


class Proposal(msgspec.Struct, kw_only=True, frozen=True):
    """A map between two runs, line by line."""

    a: str
    b: str
    tap_map: TapMap
    lines: list[Line]
    open_a: list[str]
    """Taps of A for which nothing was found."""
    open_b: list[str]
    """Taps of B that no line uses and that hold no tensor of a used one."""
    repeats_b: list[str]
    """Taps of B that hold the tensors of used ones."""
    open_weights_a: list[str]
    """Weights of A that no line speaks of and that B has not by that name."""
    open_weights_b: list[str]
