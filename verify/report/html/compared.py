"""What was compared, what else differs, and what was left out."""

from __future__ import annotations

import shlex

from verify.bisect.result import BisectResult
from verify.compare.result import TapComparison
from verify.report.html.markup import Child, Markup, tag
from verify.report.html.tables import Column, bullets, code, folded, section, table
from verify.report.numbers import count, measure, plural, ulps
from verify.report.words import (
    dtype_text,
    left_out_or_nothing,
    oddities,
    ordered,
    row_text,
    throughput,
)

_TAPS: tuple[Column, ...] = (
    ("Tap", False),
    ("dtype", False),
    ("Rows that differ", True),
    ("Elements that differ", True),
    ("Max abs", True),
    ("Relative L2", True),
    ("ULP p50", True),
    ("ULP p99", True),
    ("ULP max", True),
    ("First differing row", False),
    ("Note", False),
)
_CONFOUNDERS: tuple[Column, ...] = (
    ("What", False),
    ("A", False),
    ("B", False),
    ("Weight", False),
    ("Note", False),
)
_WORDS = (
    ("tap", "a named place in the model where a tensor was recorded: module path and port"),
    ("row", "the part of a tensor that belongs to one position of one sequence"),
    ("origin", "a tap that differs while every recorded input of it is equal"),
    ("relative L2", "‖b − a‖ / ‖a‖ over finite elements; 0 means equal"),
    ("ULP", "distance in representable values of the coarser of the two dtypes"),
    ("margin", "best logit minus next best logit; in steps: in ULPs of the logits at that size"),
    ("shift", "A's choice against its rival; where it reaches A's margin the token flips"),
)  # fmt: skip


def taps_section(result: BisectResult) -> Markup:
    """Every tap, with a filter."""
    taps = result.comparison.taps
    if not taps:
        return section("taps", "Every tap", tag("p", "No tap was compared."))
    differing = [i for i, tap in enumerate(taps) if not tap.equal]
    title = f"{plural(len(taps), 'compared tap')} in the order in which A ran them"
    finder = tag(
        "p",
        tag("label", "Filter by tap name ", tag("input", type="search", id="tap-filter")),
        tag("output", "", id="tap-count"),
        class_="filter",
        hidden=True,
    )
    return section(
        "taps",
        "Every tap",
        tag("p", f"{count(len(differing))} of {plural(len(taps), 'tap')} differ; "
                 f"{throughput(result.comparison)}. Quantiles are over all elements of a tap."),
        folded(title, finder, table(title, _TAPS, map(_row, taps), identity="taps-table",
                                    marked=differing)),
    )  # fmt: skip


def _row(tap: TapComparison) -> list[Child]:
    return [
        code(tap.tap),
        dtype_text(tap),
        f"{count(tap.differing_rows)} of {count(tap.rows)}",
        f"{count(tap.differing_elements)} of {count(tap.elements)}",
        measure(tap.max_abs),
        measure(tap.relative_l2),
        ulps(tap.ulp_median),
        ulps(tap.ulp_p99),
        ulps(tap.ulp_max),
        row_text(tap.first),
        "bitwise equal" if tap.equal else "; ".join(("differs", *oddities(tap))),
    ]


def confounders_section(result: BisectResult) -> Markup:
    found = ordered(result.confounders)
    if not found:
        return section("confounders", "What else differs", tag("p", "Nothing that was recorded."))
    rows = [(code(f.name), code(f.a), code(f.b), f.weight, f.note) for f in found]
    caption = "Differences between the two runs beside their numbers; declared ones were intended"
    at_once = [tag("p", result.changed_at_once)] if result.changed_at_once else []
    return section("confounders", "What else differs", *at_once, table(caption, _CONFOUNDERS, rows))


def left_out_section(result: BisectResult) -> Markup:
    lines = left_out_or_nothing(result)
    shown = bullets(lines[:20])
    rest = folded(f"{len(lines) - 20} more", bullets(lines[20:])) if len(lines) > 20 else None
    notes = result.comparison.notes
    return section(
        "left-out",
        "What was not compared",
        shown,
        rest,
        [tag("h3", "Notes"), bullets(notes)] if notes else None,
    )


def reproduce_section(result: BisectResult) -> Markup:
    command = result.command or ["verify", "bisect", result.comparison.a, result.comparison.b]
    return section(
        "reproduce",
        "How to reproduce",
        tag("pre", code(shlex.join(command)), tabindex=0),
        tag("p", "Every number of this page stands in ",
            tag("a", "report.json", href="report.json"),
            " beside it; the figures lie there as files of their own."),
        folded("Words used here", tag("dl", [
            tag("div", tag("dt", word), tag("dd", meaning)) for word, meaning in _WORDS
        ])),
    )  # fmt: skip
