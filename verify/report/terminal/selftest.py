"""The table of ``verify selftest``: how often the report was right, by size and by kind."""

from __future__ import annotations

from rich.console import Console

from verify.report.names import printable
from verify.report.numbers import count
from verify.report.terminal.blocks import bullets, heading, line, table
from verify.selftest.result import Rate, SelftestResult, Summary, Trial

MISSES_SHOWN = 12

_COLUMNS = (
    ("", "left"),
    ("found", "right"),
    ("tap", "right"),
    ("verdict", "right"),
    ("support", "right"),
    ("false blame", "right"),
)


def render_selftest(result: SelftestResult, console: Console) -> None:
    """Print the demands first, then the rates, then every trial that went wrong."""
    tried = len(result.trials) - result.innocent.trials
    head = "Every demand is met" if not result.missed else "Not every demand is met"
    line(
        console,
        f"{head}: {count(tried)} faults, {count(result.innocent.trials)} innocent pairs",
        "bold",
    )
    line(
        console,
        f"model {printable(result.model)}; {result.unplanted} faults changed no recorded bit",
    )
    heading(console, "Demands")
    missed = set(result.missed)
    bullets(console, (("NOT MET  " if bar in missed else "met  ") + bar for bar in result.bars))
    for title, rows in (
        ("By size", result.by_size),
        ("By kind, gross and moderate", result.by_kind),
    ):
        if rows:
            heading(console, title)
            table(console, _COLUMNS, map(_row, rows))  # type: ignore[arg-type]
    wrong = [trial for trial in result.trials if _is_wrong(trial)]
    if wrong:
        heading(console, "What went wrong")
        bullets(console, map(_tell, wrong), MISSES_SHOWN)


def _row(summary: Summary) -> tuple[str, ...]:
    shown = (summary.found, summary.right_tap, summary.right_verdict, summary.right_support)
    return (printable(summary.label), *map(_of, shown), _of(summary.false_blame))


def _of(rate: Rate) -> str:
    return f"{rate.hits}/{rate.trials}" if rate.trials else "-"


def _is_wrong(trial: Trial) -> bool:
    if trial.error or trial.false_blame:
        return True
    loud = trial.kind != "innocent" and trial.size != "tiny" and trial.changed
    return loud and not (trial.found and trial.right_tap and trial.right_verdict)


def _tell(trial: Trial) -> str:
    where = f"layer {trial.layer}, {trial.setup}" if trial.layer >= 0 else trial.setup
    said = trial.error or f"{trial.verdict}, accused {', '.join(trial.blamed[:2]) or 'nothing'}"
    return printable(f"{trial.kind} {trial.name}, {trial.size or 'as it is'}, {where}: {said}")
