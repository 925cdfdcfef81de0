"""Tables, lists and sections with the structure that assistive software reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verify.report.html.markup import Child, Markup, tag

Column = tuple[str, bool]
"""Title, and whether the column holds numbers."""


def section(identity: str, title: str, *children: Child) -> Markup:
    heading = tag("h2", title, id=f"{identity}-title")
    return tag("section", heading, *children, id=identity, aria_labelledby=f"{identity}-title")


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Child]],
    *,
    identity: str | None = None,
    marked: Iterable[int] = (),
) -> Markup:
    """A captioned table; the first cell of each row is its header.

    Args:
        marked: numbers of the rows to stand out (they also say why in a cell).
    """
    wanted = set(marked)
    head = tag("tr", [_head(column) for column in columns])
    body = [
        tag("tr", _cells(columns, row), class_="marked" if number in wanted else None)
        for number, row in enumerate(rows)
    ]
    inner = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", body), id=identity
    )
    return scrollable(inner, caption)


def scrollable(content: Markup, label: str) -> Markup:
    """A region that scrolls sideways on narrow screens and can be reached by keyboard."""
    return tag("div", content, class_="scroll", role="group", aria_label=label, tabindex=0)


def definitions(pairs: Iterable[tuple[str, Child]]) -> Markup | None:
    """A list of names and values; nothing for empty values."""
    shown = [(name, value) for name, value in pairs if value]
    if not shown:
        return None
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in shown])


def bullets(items: Iterable[Child]) -> Markup:
    return tag("ul", [tag("li", item) for item in items])


def folded(summary: str, *children: Child) -> Markup:
    """Content that opens on demand."""
    return tag("details", tag("summary", summary), *children)


def code(text: str) -> Markup:
    return tag("code", text)


def _head(column: Column) -> Markup:
    title, number = column
    return tag("th", title, scope="col", class_="number" if number else None)


def _cells(columns: Sequence[Column], row: Sequence[Child]) -> list[Markup]:
    first = tag("th", row[0], scope="row")
    rest = [
        tag("td", cell, class_="number" if number else None)
        for (_, number), cell in zip(columns[1:], row[1:], strict=True)
    ]
    return [first, *rest]
