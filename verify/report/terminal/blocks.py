"""The building blocks of a terminal report: headings, labelled lines, bullets and tables.

Texts from dumps are never read as console markup: everything goes through ``rich.text.Text``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

LABEL_WIDTH = 10
Justify = Literal["left", "right"]


def heading(console: Console, title: str) -> None:
    """A section title on a line of its own, after an empty line."""
    console.print()
    dashes = "─" * max(0, min(console.width, 80) - len(title) - 4)
    console.print(Text.assemble("── ", (title, "bold"), " ", dashes), no_wrap=True, crop=False)


def line(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """A paragraph, wrapped to the console."""
    _hanging(console, Text(" " * indent), Text(text, style=style))


def labelled(console: Console, label: str, text: str, indent: int = 3) -> None:
    """``label  text`` with the text wrapped in its own column; nothing for an empty text."""
    if text:
        head = Text(" " * indent + label.ljust(LABEL_WIDTH) + " ", style="bold")
        _hanging(console, head, Text(text))


def bullets(console: Console, texts: Iterable[str], limit: int | None = None) -> None:
    """One bullet a text; beyond ``limit`` the number that is left out is said."""
    wanted = list(texts)
    shown = wanted if limit is None else wanted[:limit]
    for text in shown:
        _hanging(console, Text(" · "), Text(text))
    if len(shown) < len(wanted):
        line(console, f"… and {len(wanted) - len(shown)} more (report.json lists them all)", "", 3)


def _hanging(console: Console, head: Text, body: Text) -> None:
    """``head`` once, then ``body`` wrapped to what is left of the line."""
    margin = Text(" " * head.cell_len)
    lines = body.wrap(console, max(20, console.width - head.cell_len)) or [Text("")]
    for number, part in enumerate(lines):
        part.rstrip()
        console.print(Text.assemble(margin if number else head, part), no_wrap=True, crop=False)


def table(
    console: Console,
    columns: Sequence[tuple[str, Justify]],
    rows: Iterable[Sequence[str]],
    indent: int = 1,
) -> None:
    """A table with a rule under its head; long cells are folded, never cut."""
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for title, justify in columns:
        grid.add_column(Text(title), justify=justify, overflow="fold", vertical="top")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(Padding(grid, (0, 0, 0, indent), expand=False))
