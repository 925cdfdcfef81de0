"""The table of ``verify suite``: what differs between the configurations, then stream by stream."""

from __future__ import annotations

from rich.console import Console

from verify.report.names import printable
from verify.report.terminal.blocks import bullets, heading, line, table
from verify.suite.result import Pair, SuiteResult


def render_suite(result: SuiteResult, console: Console) -> None:
    """Print the sentence, the differences, and the table."""
    line(console, f"{'IDENTICAL' if result.exit_code == 0 else 'FAILED'} · {result.name}", "bold")
    line(console, printable(result.summary))
    heading(console, "What differs between A and B")
    if result.differences:
        undeclared = set(result.undeclared)
        rows = [
            (d.weight, printable(d.name) + (" (undeclared)" if d.name in undeclared else ""),
             printable(d.a), printable(d.b))
            for d in result.differences
        ]  # fmt: skip
        table(console, (("weight", "left"), ("what", "left"), ("A", "left"), ("B", "left")), rows)
    else:
        line(console, "Nothing that was recorded.", "", 1)
    heading(console, "Streams")
    columns = (("prompt", "left"), ("in", "right"), ("out A", "right"), ("out B", "right"),
               ("result", "left"), ("verdict", "left"))  # fmt: skip
    table(console, columns, map(_row, result.pairs))  # type: ignore[arg-type]
    notes = [f"{pair.prompt}: {pair.note}" for pair in result.pairs if pair.note]
    if notes:
        heading(console, "Notes")
        bullets(console, map(printable, notes))


def _row(pair: Pair) -> tuple[str, ...]:
    if pair.state == "ERROR":
        return printable(pair.prompt), "-", "-", "-", "ERROR", ""
    said = "identical"
    if pair.first is not None:
        said = f"token {pair.first}: {pair.text_a!r} | {pair.text_b!r}"
    ends = [
        f"{count}{'+' if ended == 'limit' else ''}"
        for count, ended in ((pair.tokens_a, pair.ended_a), (pair.tokens_b, pair.ended_b))
    ]
    return printable(pair.prompt), str(pair.prompt_tokens), *ends, printable(said), pair.verdict
