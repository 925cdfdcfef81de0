"""The result for runs that cannot stand against each other."""

from __future__ import annotations

from collections.abc import Sequence

from verify.bisect.result import BisectResult, Confounder, Finding, Verdict
from verify.bisect.verdict import exit_code
from verify.compare.result import Comparison
from verify.dumps.format import Dump
from verify.env import say_changes


def nothing_compared(a: Dump, b: Dump) -> Comparison:
    """The comparison of two runs that were not compared."""
    return Comparison(
        a=str(a.path), b=str(b.path), complete_a=a.complete, complete_b=b.complete, taps=[],
        unmatched=[], padding_rows=0, rows=0, bytes_read=0, seconds=0.0,
        notes=[*a.problems, *b.problems],
    )  # fmt: skip


def not_comparable(
    findings: list[Finding],
    confounders: list[Confounder],
    comparison: Comparison,
    command: Sequence[str],
) -> BisectResult:
    """The result where nothing may be blamed."""
    return BisectResult(
        verdict=Verdict.NOT_COMPARABLE,
        summary=f"{findings[0].title}, so a difference between the runs would say nothing.",
        findings=findings,
        confounders=confounders,
        first_token=None,
        tokens=[],
        origins=[],
        growth=[],
        positions=[],
        heatmap=[],
        comparison=comparison,
        not_compared=[],
        changed_at_once=say_changes(confounders),
        exit_code=exit_code(findings, (), fails_on_flip=False),
        command=list(command),
    )
