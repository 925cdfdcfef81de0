"""What a trial of the tool gives, and the rates over many."""

from __future__ import annotations

import msgspec


class Trial(msgspec.Struct, kw_only=True, frozen=True):
    """One pair of runs, and how the report about it did."""

    kind: str
    """Kind of the fault, or ``innocent``."""
    name: str
    size: str = ""
    layer: int = -1
    head: int = -1
    setup: str = ""
    on_top: bool = False
    """Planted above innocent rounding of lower layers."""
    dtype: str = ""
    seed: int = 0
    verdict: str = ""
    blamed: list[str] = msgspec.field(default_factory=list)
    """Taps of findings that accuse, in the order of the report."""
    changed: bool = True
    """The fault changed at least one recorded bit."""
    found: bool = False
    """The report does not call the runs equal or explained."""
    right_tap: bool = False
    """The first tap that is accused is where the fault was planted."""
    right_verdict: bool = False
    right_support: bool | None = None
    """The heads that it touched are named; None where the fault touches all of them."""
    false_blame: bool = False
    """Something is accused that is in order."""
    seconds: float = 0.0
    error: str = ""
    """The tool itself failed."""

    @property
    def key(self) -> str:
        """Equal for equal trials."""
        return f"{self.kind}|{self.name}|{self.size}|{self.layer}|{self.on_top}|{self.dtype}|{self.seed}"


class Rate(msgspec.Struct, kw_only=True, frozen=True):
    """Successes out of trials with a 95 % interval (Clopper and Pearson, Biometrika 26, 1934)."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The observed share."""
        return self.hits / self.trials if self.trials else 0.0


class Summary(msgspec.Struct, kw_only=True, frozen=True):
    """One line of the table: trials that belong together."""

    label: str
    found: Rate
    right_tap: Rate
    right_verdict: Rate
    right_support: Rate
    false_blame: Rate


class SelftestResult(msgspec.Struct, kw_only=True):
    """The result of ``verify selftest``."""

    model: str
    trials: list[Trial]
    by_size: list[Summary]
    by_kind: list[Summary]
    innocent: Rate
    """Innocent pairs of which something was called broken."""
    bars: list[str]
    """Every demand with what was reached: ``detection gross and moderate: 1.000 >= 0.95``."""
    missed: list[str]
    """The demands that were not met."""
    unplanted: int
    """Faults that changed no recorded bit: there was nothing to find."""
    exit_code: int
    schema: str = "verify-selftest/1"
