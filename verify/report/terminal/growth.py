"""How the difference grows along the depth of the model and along the positions."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from verify.bisect.result import BisectResult, GrowthPoint, PositionPoint
from verify.report.grouping import by_sequence, by_stage, severity
from verify.report.names import printable, shorten
from verify.report.numbers import measure, plural, share, ulps
from verify.report.terminal.blocks import Justify, heading, line, table
from verify.report.terminal.sparkline import sparkline

SEQUENCES_SHOWN = 4
_COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("", "left"),
    ("tap", "left"),
    ("rel L2", "right"),
    ("max ULP", "right"),
    ("elements ≠", "right"),
)


def render_growth(result: BisectResult, console: Console) -> None:
    """A curve in one line and its landmarks; nothing where nothing differs."""
    points = [point for point in result.growth if point.relative_l2 != 0]
    if not points and not any(point.relative_l2 for point in result.positions):
        return
    heading(console, "Growth (relative L2; bars on a log scale, · equal, ! not finite)")
    if points:
        _render_depth(result.growth, console)
    tracks = by_sequence(result.positions)
    for sequence in list(tracks)[:SEQUENCES_SHOWN]:
        _render_positions(sequence, tracks[sequence], console)
    if len(tracks) > SEQUENCES_SHOWN:
        line(console, f"… and {plural(len(tracks) - SEQUENCES_SHOWN, 'sequence')} more", "", 1)


def _render_depth(points: list[GrowthPoint], console: Console) -> None:
    stages = by_stage(points)
    layers = sum(stage.layer is not None for stage in stages)
    parts = f"{plural(layers, 'layer')} and what lies around them" if layers else ""
    line(console, f"along depth: {parts or plural(len(stages), 'tap')}, the largest in each", "", 1)
    values = [stage.largest.relative_l2 for stage in stages]
    line(console, sparkline(values, min(console.width, 80) - 4), "", 3)
    landmarks = _landmarks(points)
    short = shorten((point.tap for _, point in landmarks), max(20, min(console.width, 80) - 48))
    rows = [
        (
            label,
            short[point.tap],
            measure(point.relative_l2),
            ulps(point.max_ulp),
            share(point.differing_share, 1.0),
        )
        for label, point in landmarks
    ]
    table(console, _COLUMNS, rows, 3)


def _landmarks(points: list[GrowthPoint]) -> list[tuple[str, GrowthPoint]]:
    """The first differing tap, the largest difference and the last tap, each once."""
    differing = [point for point in points if point.relative_l2 != 0]
    chosen: dict[int, tuple[str, GrowthPoint]] = {}
    for label, point in (
        ("first", differing[0]),
        ("largest", max(differing, key=lambda each: severity(each.relative_l2))),
        ("last", points[-1]),
    ):
        before = chosen.get(id(point))
        chosen[id(point)] = (f"{before[0]}, {label}" if before else label, point)
    return list(chosen.values())


def _render_positions(sequence: str, points: Sequence[PositionPoint], console: Console) -> None:
    values = [point.relative_l2 for point in points]
    name = f", sequence {printable(sequence)}" if sequence else ""
    first, last = points[0].position, points[-1].position
    line(console, f"along positions {first} to {last}{name}", "", 1)
    line(console, sparkline(values, min(console.width, 80) - 4), "", 3)
    differing = [point for point in points if point.relative_l2 != 0]
    if differing:
        top = max(differing, key=lambda each: severity(each.relative_l2))
        line(
            console,
            f"first at position {differing[0].position} ({measure(differing[0].relative_l2)}), "
            f"largest at position {top.position} ({measure(top.relative_l2)})",
            "",
            3,
        )
