"""Where the difference starts."""

from __future__ import annotations

from rich.console import Console

from verify.bisect.result import BisectResult, Origin
from verify.report.names import printable
from verify.report.terminal.blocks import heading, labelled, line
from verify.report.words import (
    attribute_rows,
    interval_lines,
    no_origin_text,
    origin_status,
    pairs,
    row_text,
)

SHOWN = 4
INPUTS_SHOWN = 6


def render_origins(result: BisectResult, console: Console) -> None:
    """The first origins in execution order, each with what it was computed from."""
    origins = result.origins
    heading(console, "Where it starts")
    if not origins:
        line(console, no_origin_text(result), "", 1)
    for number, origin in enumerate(origins[:SHOWN], 1):
        _render_origin(number, origin, console)
    if len(origins) > SHOWN:
        line(console, f"… and {len(origins) - SHOWN} more (report.json lists them all)", "", 1)


def _render_origin(number: int, origin: Origin, console: Console) -> None:
    line(console, f"{number}. {printable(origin.tap)}", "bold", 1)
    labelled(console, "status", origin_status(origin))
    labelled(console, "rows", printable(origin.rows))
    steps = f"step A {origin.step_a}, B {origin.step_b}"
    labelled(console, "first", steps if origin.first is None else row_text(origin.first))
    labelled(console, "inputs", _inputs(origin))
    labelled(console, "judged", printable(origin.judged))
    for step in interval_lines(origin):
        labelled(console, "interval", step)
    labelled(console, "size", ", ".join(f"{name} {value}" for name, value in pairs(origin.measure)))
    for name, a, b, differs in attribute_rows(origin):
        labelled(console, "setting", f"{name}: A {a}, B {b}" if differs else f"{name}: {a} in both")
    for fit in origin.fits:
        labelled(console, "fit", printable(fit))


def _inputs(origin: Origin) -> str:
    recorded = [name for name in origin.inputs if name != "unknown"]
    shown = [printable(name) for name in recorded[:INPUTS_SHOWN]]
    if not shown:
        return "none recorded"
    if len(recorded) > INPUTS_SHOWN:
        shown.append(f"and {len(recorded) - INPUTS_SHOWN} more")
    return ("all equal: " if origin.proven else "recorded and equal: ") + ", ".join(shown)
