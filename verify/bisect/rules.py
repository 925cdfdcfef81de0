"""From measurements to a verdict: one table, read from the top (docs/verdicts.md prints it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from verify.bisect.result import Verdict


class Subject(StrEnum):
    """What a finding is about."""

    RUNS = "runs"
    """The two runs, or one capture, as a whole."""
    ROWS = "rows"
    """Rows without a counterpart."""
    RECORDING = "recording"
    """A tap of which one run recorded something else."""
    REPEATS = "repeats"
    """A side against itself."""
    CHOICE = "choice"
    """Tokens that differ for another reason than their logits."""
    PLACE = "place"
    """One or more taps that differ."""
    WEIGHTS = "weights"
    """Weights, or the dtype of taps with equal values."""
    REST = "rest"
    """Differences that nothing has looked at, and leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured for one finding.

    ``local``: what a check of the operation found that it adds itself (a replay with FP64, or the
    size of the difference on equal inputs); None where no check answered. ``exact_cast``: one side
    is the other rounded to a narrower format, in every element. ``declared``: a setting that
    differs names that format. ``infinite``: an infinity stands on one side where everything that
    the rows read is finite or equal.
    """

    subject: Subject
    local: Verdict | None = None
    exact_cast: bool = False
    declared: bool = False
    infinite: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; ``when`` is its text in docs/verdicts.md."""

    verdict: Verdict
    when: str
    holds: Callable[[Measured], bool]


# fmt: off
RULES: tuple[Rule, ...] = (
    Rule(Verdict.NOT_COMPARABLE, "prompts, tape, positions or network differ; nothing in common; "
         "one run holds the same bits in all layers or steps",
         lambda m: m.subject is Subject.RUNS),
    Rule(Verdict.NOT_COMPARABLE, "a tap holds what no operation read, or other axes",
         lambda m: m.subject is Subject.RECORDING),
    Rule(Verdict.INCOMPLETE, "rows have no counterpart, or a run did not come to its end",
         lambda m: m.subject is Subject.ROWS),
    Rule(Verdict.NON_REPEATABLE, "a side does not repeat itself (needs repeats of that side)",
         lambda m: m.subject is Subject.REPEATS),
    Rule(Verdict.POST_LOGITS, "tokens differ, and the logits that chose them are equal, or tie "
         "between both choices in both runs, or were not followed by a greedy run",
         lambda m: m.subject is Subject.CHOICE),
    Rule(Verdict.DEFECT, "a check found more than rounding can make, and no cast explains every "
         "element",
         lambda m: m.local is Verdict.DEFECT and not m.exact_cast),
    Rule(Verdict.OVERFLOW, "an infinity appears, on one side or in both runs, where everything that "
         "the rows read is finite or equal",
         lambda m: m.infinite),
    Rule(Verdict.ROUNDING, "a check found that what the operation adds itself is within its budget, "
         "or that it adds nothing",
         lambda m: m.local is Verdict.ROUNDING),
    Rule(Verdict.PRECISION, "one side is the other rounded to a narrower format, in every element, "
         "and a setting that differs names that format",
         lambda m: m.exact_cast and m.declared),
    Rule(Verdict.PRECISION, "a check found that the sides follow different declared conventions",
         lambda m: m.local is Verdict.PRECISION),
    Rule(Verdict.UNRESOLVED, "none of the above: a difference that nothing has explained",
         lambda m: True),
)
# fmt: on


def decide(measured: Measured) -> Verdict:
    """The verdict of the first rule that holds."""
    return next(rule.verdict for rule in RULES if rule.holds(measured))
