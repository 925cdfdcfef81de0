"""The report of ``verify replay``: what each operation adds, and who is closer to the truth."""

from __future__ import annotations

from rich.console import Console

from verify.replay.result import ReplayResult, RowParts, Status, TapReplay
from verify.report.names import printable, shorten
from verify.report.terminal.blocks import bullets, heading, labelled, line, table

TAPS_SHOWN = 40
DETAILED = 6

_MEANING = {
    Status.DEFECT: "no rounding explains what the operation adds",
    Status.UNFAITHFUL: "the model at hand does not reproduce the run",
    Status.SUSPECT: "inside the bound, but not as rounding would have it",
    Status.PRECISION: "different conventions, each explained by its own",
    Status.UNCHECKED: "it adds something, and no reference knows the operation",
    Status.ROUNDING: "what it adds is within the roundings of both sides",
    Status.INHERITED: "it adds nothing; all of the difference comes from above",
}


def render_replay(result: ReplayResult, console: Console) -> None:
    """Print all taps with a local part, the worst first in detail, and count the rest."""
    line(console, printable(result.summary), "bold")
    console.print()
    line(console, f"A  {printable(result.a)}")
    line(console, f"B  {printable(result.b)}")
    _render_counts(result, console)
    own = [tap for tap in result.taps if tap.status is not Status.INHERITED]
    _render_table(own, console)
    _render_details(own, console)
    heading(console, "How sure")
    bullets(console, _how_sure(result))


def _render_counts(result: ReplayResult, console: Console) -> None:
    heading(console, "Taps")
    for status, meaning in _MEANING.items():
        count = sum(tap.status is status for tap in result.taps)
        if count:
            line(console, f"{count:5}  {status:<10} {meaning}", indent=1)
    if result.equal_taps:
        line(console, f"{result.equal_taps:5}  {'EQUAL':<10} equal in both runs", indent=1)


def _render_table(taps: list[TapReplay], console: Console) -> None:
    if not taps:
        return
    heading(console, "What operations add themselves (L2, relative to A's values)")
    shown = taps[:TAPS_SHOWN]
    short = shorten([tap.tap for tap in shown], 30)
    rows = [
        (
            short[tap.tap],
            str(tap.status),
            _size(tap.local),
            _size(tap.inherited),
            _size(tap.total),
            tap.closer or "-",
        )
        for tap in shown
    ]
    table(
        console,
        (
            ("tap", "left"),
            ("", "left"),
            ("local", "right"),
            ("inherited", "right"),
            ("total", "right"),
            ("closer", "left"),
        ),
        rows,
    )
    if len(taps) > len(shown):
        line(console, f"… and {len(taps) - len(shown)} more (--json lists them all)", "", 1)


def _render_details(taps: list[TapReplay], console: Console) -> None:
    ranked = sorted(taps, key=lambda tap: (-list(Status).index(tap.status), tap.order))
    if ranked:
        heading(console, "In detail")
    for tap in ranked[:DETAILED]:
        line(console, f"{printable(tap.tap)}: {tap.status}", "bold", 1)
        labelled(console, "why", printable(tap.reason))
        labelled(console, "rows", f"{tap.local_rows} of {tap.rows} with a local part")
        if tap.error_a is not None and tap.error_b is not None:
            text = f"A {tap.error_a:.3g}, B {tap.error_b:.3g} from FP64 ({tap.checked_rows} rows)"
            labelled(console, "truth", text)
        if tap.budget_used is not None:
            labelled(console, "budget", f"{100 * tap.budget_used:.3g} % used")
        labelled(console, "largest", "; ".join(_row(row) for row in tap.worst[:3] if row.local))


def _row(row: RowParts) -> str:
    name = printable(row.sequence)
    return f"{name} position {row.position} (step {row.step}): {row.local:.3g}"


def _size(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}" if value else "0"


def _how_sure(result: ReplayResult) -> list[str]:
    faithful = (
        "both models reproduce their own runs bit by bit where they are given the recorded inputs"
        if result.faithful
        else "a model does not reproduce its own run: see the taps marked UNFAITHFUL"
    )
    closure = f"{result.closure_error:.2g} of the largest value of a tap"
    return [
        faithful,
        f"closure: |total - local - inherited| is at most {closure}",
        f"{result.passes} passes over {result.steps} steps in {result.seconds:.1f} s",
        *map(printable, result.notes),
    ]
