"""The row of logits that a swap is about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.compare.align import Alignment
from verify.compare.elements import floating_values
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.dumps.format.schema import Record
from verify.errors import NotComparableError
from verify.formats import get_format
from verify.replay.values import Values
from verify.swap.bench import LOGITS, Logits


@dataclass(frozen=True, slots=True)
class Choice:
    """A row of logits in both runs."""

    sequence: str
    position: int
    steps: tuple[int, int]
    a: Logits
    b: Logits

    @property
    def flips(self) -> bool:
        """The runs choose different tokens here."""
        return int(self.a.argmax()) != int(self.b.argmax())


def choose(alignment: Alignment, a_for_b: Values, position: int | None) -> Choice:
    """The row of logits to look at: the first flip, else the largest difference."""
    rows = _logit_rows(alignment, a_for_b)
    if position is not None:
        rows = [row for row in rows if row.position == position]
    unlike = [row for row in rows if not np.array_equal(row.a, row.b, equal_nan=True)]
    if not unlike:
        raise NotComparableError(
            "there is no difference of logits to find the cause of",
            found=f"{len(rows)} rows of logits that both runs recorded for the same text",
            allowed="one that differs",
            hint="capture both with --taps default --level full, B with --tape A",
        )
    flips = [row for row in unlike if row.a.argmax() != row.b.argmax()]
    return flips[0] if flips else max(unlike, key=lambda row: float(np.linalg.norm(row.a - row.b)))


def _logit_rows(alignment: Alignment, a_for_b: Values) -> list[Choice]:
    found = []
    for number, record in enumerate(alignment.b.records):
        wanted = a_for_b.wanted(number) if record.tap == LOGITS else None
        if wanted is None:
            continue
        start = alignment.b.entries(number).start
        for row, entry in zip(wanted.rows, wanted.entries, strict=True):
            found.append(_row(alignment, start + int(row), int(entry), record))
    return found


def _row(alignment: Alignment, entry_b: int, entry_a: int, record: Record) -> Choice:
    def logits(index: RowIndex, entry: int) -> tuple[Record, Logits]:
        held = index.records[int(index.record[entry])]
        words = read_entries(index, np.array([entry]))
        return held, floating_values(words, get_format(held.dtype))[0]

    held_a, a = logits(alignment.a, entry_a)
    _, b = logits(alignment.b, entry_b)
    index = alignment.b
    return Choice(
        index.sequences[int(index.sequence[entry_b])],
        int(index.position[entry_b]),
        (held_a.step, record.step),
        a,
        b,
    )
