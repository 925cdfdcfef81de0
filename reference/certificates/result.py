"""The one type in which every certificate is handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from verify.bounds import Bound


class Outcome(StrEnum):
    """What a certificate says, from harmless to worst.

    EXPLAINED: inside the bound and every statistical check passes: the declared rounding suffices.
    PRECISION: two sides follow different *declared* conventions, and each is explained by its own.
    SUSPECT: inside the bound, but not as rounding would have it; a run's verdict is UNRESOLVED.
    DEFECT: an exact case or the rigorous bound fails, or the family-wise chance that rounding did
    this is below 1e-9.
    """

    EXPLAINED = "EXPLAINED"
    PRECISION = "PRECISION"
    SUSPECT = "SUSPECT"
    DEFECT = "DEFECT"


_SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The most severe of ``outcomes``; EXPLAINED where there is none."""
    return max(outcomes, key=_SEVERITY.__getitem__, default=Outcome.EXPLAINED)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One test of one output: a number, its limit with the reason, and what breaking it means."""

    name: str
    statistic: float
    limit: Bound
    passed: bool
    detail: str = ""
    """Where the worst value lies and what it points to, in words."""
    if_broken: Outcome = Outcome.DEFECT
    """The outcome that this check forces when it does not pass."""
    log10_p: float | None = None
    """log10 of the family-wise chance that correct rounding gives a statistic this large."""

    @property
    def outcome(self) -> Outcome:
        return Outcome.EXPLAINED if self.passed else self.if_broken


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement on one output (or one pair of outputs) with everything it rests on.

    ``checks`` never is empty: a certificate that tested nothing cannot be built with
    :func:`conclude`.
    """

    outcome: Outcome
    op: str
    arithmetic: str
    """Name of the declared arithmetic, or ``"A against B"`` for a pair."""
    checks: tuple[Check, ...]
    reasons: tuple[str, ...]
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    """Measured quantities by name; docs/numerics.md and docs/numerics-attention.md define them."""
    conventions: tuple[str, ...] = ()
    """The declared conventions in which two sides differ; only for pairs."""

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)


def conclude(
    op: str,
    arithmetic: str,
    checks: Iterable[Check],
    *,
    reasons: Iterable[str] = (),
    numbers: Mapping[str, float] | None = None,
    conventions: Iterable[str] = (),
) -> Certificate:
    """A certificate whose outcome is the worst that a check forces.

    ``reasons`` come after one line for each broken check. PRECISION is the outcome where
    ``conventions`` is not empty and no check is broken.

    Raises:
        ValueError: no checks: nothing tested is never "explained".
    """
    done = tuple(checks)
    if not done:
        raise ValueError(f"a certificate of {op} needs at least one check")
    named = tuple(conventions)
    outcome = worst([check.outcome for check in done] + [Outcome.PRECISION] * bool(named))
    return Certificate(
        outcome=outcome,
        op=op,
        arithmetic=arithmetic,
        checks=done,
        reasons=tuple(_broken(check) for check in done if not check.passed) + tuple(reasons),
        numbers=dict(numbers or {}),
        conventions=named,
    )


def _broken(check: Check) -> str:
    place = f" ({check.detail})" if check.detail else ""
    found = f"{check.name}: {check.statistic:.4g} exceeds {check.limit.value:.4g}{place}"
    return f"{found}; the limit is {check.limit.why}"
