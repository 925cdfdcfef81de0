"""What one check found, and the text that a failing test prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.forensics.support import describe_numbers
from verify.report.numbers import share

SHOWN = 8
"""Worst elements listed."""


@dataclass(slots=True)
class Outcome:
    """One check: whether it passed, one line that says why, and the lines below it."""

    check: str
    passed: bool
    headline: str
    lines: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The whole message."""
        return "\n".join([self.headline, *(f"  {line}" for line in self.lines)])


def labelled(label: str, value: object) -> str:
    """One line of the table."""
    return f"{label:<13}{value}"


def refused(check: str, why: str, *lines: str) -> Outcome:
    """A check that compared nothing: never a pass."""
    return Outcome(check, False, f"{check}: {why}", list(lines), {"refused": why})


def where(wrong: NDArray[np.bool_]) -> list[str]:
    """The indices along each axis that hold a wrong element, and the share of all elements."""
    count = int(wrong.sum())
    lines = [labelled("elements", f"{count:,} of {wrong.size:,} ({share(count, wrong.size)})")]
    for axis in range(wrong.ndim):
        others = tuple(i for i in range(wrong.ndim) if i != axis)
        touched = np.flatnonzero(wrong.any(axis=others))
        text = describe_numbers("index", "indices", touched, range(wrong.shape[axis]))
        lines.append(labelled(f"axis {axis}", text))
    return lines


def columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Right-aligned columns under their titles."""
    table = [list(titles), *map(list, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(titles))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]


def place(flat: int, shape: tuple[int, ...]) -> str:
    """Index of an element as Python writes it: ``[0, 3, 17]``."""
    return "[" + ", ".join(str(int(i)) for i in np.unravel_index(flat, shape)) + "]"
