"""The table of ``verify compare``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

from rich.console import Console

from verify.compare.result import Comparison, TapComparison
from verify.report.names import printable, shorten
from verify.report.numbers import count, measure, plural, share, ulps
from verify.report.terminal.blocks import Justify, bullets, heading, line, table
from verify.report.words import (
    comparison_headline,
    dtype_text,
    first_difference,
    left_out,
    oddities,
    row_text,
    throughput,
)

FIRST_SHOWN, LAST_SHOWN = 24, 8
"""Differing taps that are shown: where it starts, and where it ends up."""

GAP = 2
SHORTEST_NAME = 20
INDENT = 1

_COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("tap", "left"),
    ("rows ≠", "right"),
    ("max abs", "right"),
    ("rel L2", "right"),
    ("ULP p50", "right"),
    ("p99", "right"),
    ("max", "right"),
)


def render_comparison(result: Comparison, console: Console, *, every: bool = False) -> None:
    """Print the table: verdict first, then the taps in A's execution order.

    Args:
        every: list every tap, where otherwise runs of equal taps are one line and only the first
            and last differing ones are shown.
    """
    line(console, comparison_headline(result), "bold")
    line(console, f"A  {printable(result.a)}")
    line(console, f"B  {printable(result.b)}")
    if result.taps:
        heading(console, "Taps, in the order in which A ran them")
        render_taps(result.taps, console, every=every)
    _render_first(result, console)
    missing = left_out(result)
    if missing:
        heading(console, "Not compared")
        bullets(console, missing, None if every else 10)
    if result.notes:
        heading(console, "Notes")
        bullets(console, [printable(note) for note in result.notes])
    console.print()
    line(console, throughput(result))


def render_taps(taps: list[TapComparison], console: Console, *, every: bool = False) -> None:
    """One line a differing tap; neighbouring equal taps share a line."""
    cells = [_cells(tap) for tap in taps]
    heads = [len(title) for title, _ in _COLUMNS[1:]]
    widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    used = sum(map(max, heads, widths)) + GAP * len(heads) + INDENT
    short = shorten((tap.tap for tap in taps), max(SHORTEST_NAME, console.width - used))
    lines = [[short[tap.tap], *row] for tap, row in zip(taps, cells, strict=True)]
    table(console, _COLUMNS, lines if every else _fold(taps, lines), INDENT)
    mixed = sorted({dtype_text(tap) for tap in taps if tap.dtype_a != tap.dtype_b})
    digests = sum(tap.digest_rows > 0 for tap in taps)
    if digests:
        note = "compared by digest, their sizes estimated from sketches or unknown (-)"
        line(console, f"{plural(digests, 'tap')} {note}", "", 1)
    if mixed:
        line(
            console, f"dtypes differ: {', '.join(mixed)}; ULPs are those of the coarser one", "", 1
        )


def _fold(taps: list[TapComparison], lines: list[list[str]]) -> Iterator[list[str]]:
    """Without the middle of a long list of differing taps, and without runs of equal ones."""
    differing = [i for i, tap in enumerate(taps) if not tap.equal]
    hidden = range(0)
    if len(differing) > FIRST_SHOWN + LAST_SHOWN + 1:
        hidden = range(differing[FIRST_SHOWN], differing[-LAST_SHOWN])
    keys = ["hidden" if i in hidden else str(tap.equal) for i, tap in enumerate(taps)]
    for key, group in groupby(range(len(taps)), keys.__getitem__):
        members = list(group)
        if key == "hidden":
            many = sum(not taps[i].equal for i in members)
            yield [f"… {plural(len(members), 'tap')}, {count(many)} differ"]
        elif key == "True" and len(members) > 2:
            yield [f"= {plural(len(members), 'tap')}, bit for bit"]
        else:
            yield from (lines[i] for i in members)


def _cells(tap: TapComparison) -> list[str]:
    rows = f"{count(tap.differing_rows)}/{count(tap.rows)}"
    if tap.equal:
        return [rows, "equal", "equal", "0", "0", "0"]
    return [
        rows,
        *(_size(value, tap) for value in (tap.max_abs, tap.relative_l2)),
        ulps(tap.ulp_median),
        ulps(tap.ulp_p99),
        ulps(tap.ulp_max),
    ]


def _size(value: float, tap: TapComparison) -> str:
    """NaN is no measurement where no words were kept."""
    return "-" if tap.digest_rows and math.isnan(value) else measure(value)


def _render_first(result: Comparison, console: Console) -> None:
    first = first_difference(result)
    if first is None:
        return
    heading(console, "First difference that A ran into")
    line(console, printable(first.tap), "bold", 1)
    line(console, row_text(first.first), "", 1)
    elements = share(first.differing_elements, first.elements)
    line(console, f"{elements} of its elements differ ({dtype_text(first)})", "", 1)
    for text in oddities(first):
        line(console, text, "", 1)
