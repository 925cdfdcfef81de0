"""The report of ``verify recapture``: the window, how the runs repeated, then the bisect of it."""

from __future__ import annotations

import shlex

from rich.console import Console

from verify.recapture.result import Again, Recaptured, Split
from verify.report.names import printable
from verify.report.terminal.bisect import render_bisect
from verify.report.terminal.blocks import bullets, heading, labelled, line


def render_recaptured(found: Recaptured, console: Console) -> None:
    """Print everything; recapture.json holds what is shortened here."""
    if not found.again:
        line(console, "No second pass: the first has no split that could be looked at.", "bold")
        console.print()
        render_bisect(found.result, console)
        return
    render_bisect(found.result, console)
    heading(console, "The second pass")
    for split in found.splits:
        labelled(console, "around", printable(_split(split)))
    labelled(console, "taps", printable(", ".join(found.taps)))
    for again in found.again:
        labelled(console, again.side, printable(_again(again)))
    bullets(
        console, (f"{again.side}: {printable(shlex.join(again.command))}" for again in found.again)
    )


def _split(split: Split) -> str:
    steps = f"step {split.step_a}"
    if split.step_b != split.step_a:
        steps = f"step {split.step_a} of A, step {split.step_b} of B"
    row = f", position {split.position}" if split.position >= 0 else ""
    return f"{split.tap}, {steps}{row}"


def _again(again: Again) -> str:
    how = "as in the first pass" if again.repeats else "NOT as in the first pass"
    return (
        f"steps {again.steps}: {again.bytes / 1e6:.2f} MB ({again.first_bytes / 1e6:.2f} MB in the "
        f"first pass); {again.rows} rows of {again.taps} taps came out {how}"
    )
