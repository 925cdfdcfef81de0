"""Where the difference starts: one article an origin."""

from __future__ import annotations

from verify.bisect.result import BisectResult, Origin
from verify.report.html.markup import Child, Markup, tag
from verify.report.html.tables import Column, bullets, code, definitions, folded, section, table
from verify.report.words import (
    attribute_rows,
    interval_lines,
    no_origin_text,
    origin_status,
    pairs,
    row_text,
)

OPEN = 4
"""Origins shown at once; the others open on demand."""

_SETTINGS: tuple[Column, ...] = (("Setting", False), ("A", False), ("B", False), ("Note", False))


def origins_section(result: BisectResult) -> Markup:
    origins = result.origins
    articles: list[Child] = [_article(i, origin) for i, origin in enumerate(origins, 1)]
    rest = articles[OPEN:]
    return section(
        "origins",
        "Where it starts",
        None if origins else tag("p", no_origin_text(result)),
        articles[:OPEN],
        folded(f"{len(rest)} more", rest) if rest else None,
    )


def _article(number: int, origin: Origin) -> Markup:
    steps = f"step A {origin.step_a}, B {origin.step_b}"
    inputs: list[Child] = [[code(name), " "] for name in origin.inputs]
    known = "All inputs are equal" if origin.proven else "Recorded inputs, all equal"
    settings = [
        (name, a, b, "differs" if differs else "") for name, a, b, differs in attribute_rows(origin)
    ]
    return tag(
        "article",
        tag("h3", f"{number}. ", code(origin.tap)),
        tag("p", origin_status(origin).capitalize() + ".", class_="status"),
        definitions(
            (
                ("Rows", origin.rows),
                ("First", steps if origin.first is None else row_text(origin.first)),
                (known, inputs or "none recorded"),
                ("Judged", origin.judged),
                ("Interval", [tag("div", code(step)) for step in interval_lines(origin)]),
                *pairs(origin.measure),
            )
        ),
        [tag("h4", "What the difference is"), bullets(origin.fits)] if origin.fits else None,
        table(
            f"Settings that {origin.tap} read",
            _SETTINGS,
            settings,
            marked=[i for i, row in enumerate(settings) if row[3]],
        )
        if settings
        else None,
    )
