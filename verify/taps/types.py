"""The data types of a tap map. docs/taps.md says in words what they mean.

A map presents the taps of run B under the names of run A. Nothing in it is measured: a map is a
claim about two implementations, and `verify taps A B --map` checks it against two runs.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FORMAT_NAME = "verify-tap-map"
FORMAT_VERSION = 1

Side = Literal["a", "b"]
Join = Literal["concat", "add"]
Heads = Literal["interleaved", "halves"]
"""How B pairs the channels of a head that a rotary embedding turns together: ``interleaved`` are
neighbours (0, 1), (2, 3), ... and ``halves`` are (0, d/2), (1, d/2 + 1), ...; A has the other one."""


class TapRule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One tap of A, from one or several taps of B. The fields after ``b`` are applied in the order
    in which they stand here."""

    a: str
    """Pattern: ``{n}`` is a number, the same in ``a`` and ``b``; ``{n+1}`` and ``{n-1}`` count on."""
    b: str | list[str]
    occurrence: Literal["first", "last"] | int | None = None
    """Which of several records of B's tap in a step, -2 for the one before the last; it becomes A's
    occurrence 0. None: each."""
    join: Join | None = None
    """How several taps become one: side by side, or added in the dtype of the tensors."""
    split: list[str] | None = None
    """Names in ``sizes``: B's row is these parts, one behind the other. ``take`` names one."""
    take: str | None = None
    columns: list[str] | None = None
    """First element and the one behind the last, as names or expressions of sizes."""
    heads: Heads | None = None
    head_dim: str = "head_dim"
    rotary_dim: str | None = None
    """Channels of a head that are turned, the first ones; None: all."""
    dims: list[str] | None = None
    """B's row is an array of these sizes, row-major ..."""
    order: list[int] | None = None
    """... and A's has its axes in this order, as in numpy.transpose."""
    note: str = ""

    @property
    def sources(self) -> list[str]:
        return [self.b] if isinstance(self.b, str) else self.b


class WeightRule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One weight of A that is a weight of B, or some rows of one."""

    a: str
    b: str
    split: list[str] | None = None
    """As of taps, over the rows of the weight (its first axis)."""
    take: str | None = None
    reordered: bool = False
    """The values stand in another order, so that digests cannot tell: taken to be equal."""


class Alone(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Taps, weights or values from outside of one side (a glob) for which the other has no
    counterpart, and why."""

    side: Side
    why: str
    tap: str | None = None
    weight: str | None = None
    value: str | None = None
    equal: bool = False
    """What reads it is judged as if both runs had the same there. An assumption: it is listed."""


class TapMap(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A whole map."""

    format: Literal["verify-tap-map"]
    version: Literal[1]
    name: str
    a: str
    """What A is, in words."""
    b: str
    about: str = ""
    extends: str = ""
    """Name of a shipped map whose rules stand behind those of this one."""
    sizes: dict[str, str] = msgspec.field(default_factory=dict)
    """Name -> expression of configuration entries: integers, names, + - * // and brackets."""
    tap: list[TapRule] = msgspec.field(default_factory=list)
    weight: list[WeightRule] = msgspec.field(default_factory=list)
    alone: list[Alone] = msgspec.field(default_factory=list)
