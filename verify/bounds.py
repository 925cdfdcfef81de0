"""A tolerance is never a bare number: it carries the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound on an error, with its derivation in one line.

    ``value`` has the unit of the quantity that it bounds (absolute unless ``why`` says otherwise).
    """

    value: float
    why: str

    def __post_init__(self) -> None:
        if not self.value >= 0.0:  # also refuses NaN
            raise ValueError(f"a bound is a number >= 0, found {self.value!r} ({self.why})")
        if not self.why.strip():
            raise ValueError("a bound needs the reason for its value")

    def used_by(self, error: float) -> float:
        """Share of the bound that ``error`` uses; above 1 the bound is broken. 0/0 is 0."""
        if error == 0.0:
            return 0.0
        return error / self.value if self.value > 0.0 else float("inf")
