"""Ledger entries and the result of a check on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console

from verify.ledger.check import LedgerCheck
from verify.ledger.entry import Entry
from verify.report.names import printable
from verify.report.numbers import plural
from verify.report.terminal.blocks import bullets, line

SHOWN = 160
"""Characters of an entry's data; --json shows all."""


def render_entries(entries: Sequence[Entry], console: Console) -> None:
    """Number, time, kind, what it says, and the artifacts it rests on."""
    for entry in entries:
        line(console, f"{entry.number}  {printable(entry.time)}  {printable(entry.kind)}  "
             f"{entry.hash[:12]}", "bold")  # fmt: skip
        text = msgspec.json.encode(entry.data).decode()
        line(console, printable(text if len(text) <= SHOWN else text[: SHOWN - 2] + " …"), "", 3)
        for each in entry.artifacts:
            line(console, printable(f"{each.name}  {each.sha256[:12]}  {each.bytes} bytes"), "", 3)


def render_check(found: LedgerCheck, console: Console) -> None:
    """Whole, or what is wrong and where."""
    counts = f"{plural(found.entries, 'entry', 'entries')}, {plural(found.artifacts, 'artifact')}"
    if found.whole:
        line(console, f"The ledger is whole: {counts}. Last hash {found.last}")
        return
    line(console, f"The ledger is NOT whole ({counts}):", "bold red")
    bullets(console, map(printable, found.problems))
