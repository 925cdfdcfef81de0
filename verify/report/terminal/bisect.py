"""The report of ``verify bisect``: verdict first, then what it stands on."""

from __future__ import annotations

from rich.console import Console

from verify.bisect.result import BisectResult, Finding
from verify.report.names import printable, shorten
from verify.report.terminal.blocks import bullets, heading, labelled, line, table
from verify.report.terminal.growth import render_growth
from verify.report.terminal.origins import render_origins
from verify.report.terminal.tokens import render_tokens
from verify.report.words import (
    VERDICT_MEANING,
    exit_text,
    left_out_or_nothing,
    ordered,
    pairs,
    size_text,
    to_settle,
)

TAPS_SHOWN = 6
LEFT_OUT_SHOWN = 12


def render_bisect(result: BisectResult, console: Console) -> None:
    """Print the whole report; report.json and the HTML page hold what is shortened here."""
    line(console, f"{result.verdict} · {VERDICT_MEANING[result.verdict]}", "bold")
    line(console, printable(result.summary))
    console.print()
    line(console, f"A  {printable(result.comparison.a)}")
    line(console, f"B  {printable(result.comparison.b)}")
    _render_findings(result.findings, console)
    render_tokens(result, console)
    render_origins(result, console)
    render_growth(result, console)
    _render_confounders(result, console)
    _render_left_out(result, console)
    _render_settle(result, console)
    console.print()
    line(console, exit_text(result.exit_code), "bold")


def _render_findings(findings: list[Finding], console: Console) -> None:
    if not findings:
        return
    heading(console, "Why")
    for number, finding in enumerate(findings, 1):
        line(console, f"{number}. {finding.verdict}: {printable(finding.title)}", "bold", 1)
        bullets(console, map(printable, finding.reasons))
        labelled(console, "where", printable(finding.support))
        labelled(console, "taps", _tap_list(finding.taps, console.width))
        labelled(console, "sizes", size_text(finding))
        labelled(console, "numbers", ", ".join(f"{n} {v}" for n, v in pairs(finding.numbers)))


def _tap_list(taps: list[str], width: int) -> str:
    short = shorten(taps, width // 2)
    shown = [short[tap] for tap in taps[:TAPS_SHOWN]]
    if len(taps) > TAPS_SHOWN:
        shown.append(f"and {len(taps) - TAPS_SHOWN} more")
    return ", ".join(shown)


def _render_confounders(result: BisectResult, console: Console) -> None:
    heading(console, "What else differs between the runs")
    if not result.confounders:
        line(console, "Nothing that was recorded.", "", 1)
        return
    rows = [
        (printable(each.weight), printable(each.name), printable(each.a), printable(each.b))
        for each in ordered(result.confounders)
    ]
    table(console, (("weight", "left"), ("what", "left"), ("A", "left"), ("B", "left")), rows)
    notes = [f"{each.name}: {each.note}" for each in ordered(result.confounders) if each.note]
    bullets(console, map(printable, notes))
    if result.changed_at_once:
        line(console, printable(result.changed_at_once), "bold", 1)


def _render_left_out(result: BisectResult, console: Console) -> None:
    heading(console, "What was not compared")
    bullets(console, left_out_or_nothing(result), LEFT_OUT_SHOWN)


def _render_settle(result: BisectResult, console: Console) -> None:
    steps = to_settle(result)
    if steps:
        heading(console, "What would settle it")
        bullets(console, map(printable, steps))
