"""The report of ``verify noise``: what repeats, what does not, and what that rests on."""

from __future__ import annotations

from rich.console import Console

from verify.noise.measure import describe
from verify.noise.result import NoiseGroup, NoiseResult
from verify.report.names import printable, shorten
from verify.report.numbers import count, measure, ulps
from verify.report.terminal.blocks import bullets, heading, line, table

TAPS_SHOWN = 12

_COLUMNS = (("tap", "left"), ("runs ≠", "right"), ("rows ≠", "right"), ("max ULP", "right"),
            ("rel L2", "right"))  # fmt: skip


def render_noise(result: NoiseResult, console: Console) -> None:
    """Print the statement about repeats, then every group with its noise floor."""
    line(console, "REPEATABLE" if result.repeatable else "NON_REPEATABLE", "bold")
    line(console, printable(result.summary))
    for group in result.groups:
        heading(console, f"{printable(group.name)} ({group.repeats} against the first run)")
        if group.equal:
            line(console, "Equal in every bit.", "", 1)
        else:
            _render_group(group, console)


def _render_group(group: NoiseGroup, console: Console) -> None:
    line(console, printable(describe(group)), "", 1)
    names = shorten([tap.tap for tap in group.taps], console.width // 2)
    rows = [
        (
            names[tap.tap],
            f"{tap.differing_runs}/{group.repeats}",
            count(tap.differing_rows),
            "-" if tap.max_ulp is None else ulps(tap.max_ulp),
            measure(tap.relative_l2),
        )
        for tap in group.taps[:TAPS_SHOWN]
    ]
    if rows:
        table(console, _COLUMNS, rows)  # type: ignore[arg-type]
    if len(group.taps) > TAPS_SHOWN:
        line(console, f"… and {len(group.taps) - TAPS_SHOWN} more taps (noise.json)", "", 1)
    bullets(
        console,
        (
            f"{printable(rate.sequence)} position {rate.position}: {rate.flips} of {rate.trials} "
            f"choices flip (95 %: {rate.low:.2f} to {rate.high:.2f})"
            for rate in group.flips
        ),
        TAPS_SHOWN,
    )
