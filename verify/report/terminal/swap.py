"""The report of ``verify swap``: the sets that move the output, and every trial with its margin."""

from __future__ import annotations

from rich.console import Console

from verify.report.names import printable
from verify.report.terminal.blocks import bullets, heading, labelled, line, table
from verify.swap.result import SwapResult


def render_swap(result: SwapResult, console: Console) -> None:
    """Print the answer, then what it rests on."""
    line(console, printable(result.summary), "bold")
    console.print()
    line(console, f"A  {printable(result.a)}")
    line(console, f"B  {printable(result.b)}")
    target = result.target
    heading(console, "The choice")
    where = f"{printable(target.sequence)} position {target.position}"
    labelled(console, "where", f"{where}, step {target.step_a} of A, {target.step_b} of B")
    labelled(console, "A chose", f"{target.chosen_a} {printable(repr(target.text_a))}")
    labelled(console, "B chose", f"{target.chosen_b} {printable(repr(target.text_b))}")
    heading(console, f"The {result.exchanged}s")
    labelled(console, "undo", _members(result.undo))
    labelled(console, "cause", _members(result.cause))
    heading(console, "Trials (moved: 0 its own logits, 1 the other run's)")
    rows = [
        (t.into, printable(t.shown), f"{t.moved:.3f}", f"{t.margin:+.3g}", "yes" * t.crossed)
        for t in result.trials
    ]
    columns = (
        ("in", "left"),
        ("taken from the other run", "left"),
        ("moved", "right"),
        ("margin", "right"),
        ("across", "left"),
    )
    table(console, columns, rows)  # type: ignore[arg-type]
    heading(console, "How sure")
    proven = sum(t.rows_proven for t in result.trials)
    cost = f"{len(result.trials)} trials ({result.passes} forward passes, {result.seconds:.1f} s)"
    budget = f"a single cause should take {result.budget} at most"
    bullets(
        console,
        [
            "confirmed in reverse, and repeated" if result.confirmed else "not confirmed",
            _proof(result, proven),
            f"{cost} over {result.candidates} {result.exchanged}s; {budget}",
            "effects need not be monotone over layers: nothing is said about sets not listed",
            *map(printable, result.notes),
        ],
    )


def _proof(result: SwapResult, proven: int) -> str:
    if result.exchanged == "tap":
        return f"{proven:,} exchanged rows were checked by digest as their readers saw them"
    return f"{proven:,} calls were served by exchanged parts; a part that serves none is refused"


def _members(taps: list[str] | None) -> str:
    return "none found" if taps is None else printable(", ".join(taps))
