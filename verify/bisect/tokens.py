"""Which tokens the two runs chose at the same place of the same text, and how closely."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from verify.bisect.choice import Choice, Describer, kept_in_full
from verify.bisect.flips import count_flips
from verify.bisect.result import Flips, TokenPosition
from verify.bisect.taps import LOGITS
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.tokens import TOKENS_OUT
from verify.formats import decode

MAX_POSITIONS = 4096
"""Positions whose logits are read; flips beyond are still found."""


@dataclass(slots=True)
class TokenReport:
    """All compared choices, in the order of A's execution."""

    positions: list[TokenPosition] = field(default_factory=list)
    first_flips: list[TokenPosition] = field(default_factory=list)
    """The first differing choice of each sequence."""
    after_logits: list[Choice] = field(default_factory=list)
    """Differing choices that the logits do not explain: equal in every bit, tied between the two
    choices in both runs, or not followed by a greedy run."""
    equal_logits: list[TokenPosition] = field(default_factory=list)
    """Of these, the ones from logits that are equal in every bit."""
    flips: Flips | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> TokenPosition | None:
        return self.first_flips[0] if self.first_flips else None

    @property
    def sure_flips(self) -> list[TokenPosition]:
        """Flips that rounding of the measured size does not make."""
        return [self.positions[i] for i in self.flips.sure] if self.flips else []


def compare_tokens(compared: RowComparison) -> TokenReport:
    """Choices at positions with the same text before them.

    Raises:
        CorruptDumpError: a tensor is not what was stored.
    """
    logits = _rows_of(compared, LOGITS)
    choices = _choices(compared)
    describer = Describer(compared)
    report = TokenReport()
    shifts = []
    flipped: set[str] = set()
    for number, (sequence, position, ids) in enumerate(choices):
        differs = ids[0] != ids[1]
        if number >= MAX_POSITIONS and not (differs and sequence not in flipped):
            continue
        at = logits.get((sequence, position))
        found = describer.describe(sequence, position, ids, at)
        report.positions.append(found.position)
        shifts.append(found.shift)
        if not differs:
            continue
        equal = at is not None and not compared.measures.differing[at]
        if equal:
            report.equal_logits.append(found.position)
        if equal or found.against or found.tie_rule:
            report.after_logits.append(found)
        if sequence not in flipped:
            flipped.add(sequence)
            report.first_flips.append(found.position)
    report.flips = count_flips(report.positions, shifts)
    if len(choices) > MAX_POSITIONS:
        report.notes.append(f"margins of the first {MAX_POSITIONS} of {len(choices)} choices")
    return report


def _rows_of(compared: RowComparison, tap: str) -> dict[tuple[str, int], int]:
    """(sequence, position) -> compared row (number in the alignment), the last visit."""
    x = compared.alignment
    of_tap = x.a.is_of(lambda kind: kind.tap == tap)
    at = np.flatnonzero(compared.compared & of_tap[x.a.record[x.rows_a]])
    entries = x.rows_a[at]
    names = [x.a.sequences[code] for code in x.a.sequence[entries]]
    return dict(
        zip(zip(names, x.a.position[entries].tolist(), strict=True), at.tolist(), strict=True)
    )


def _choices(compared: RowComparison) -> list[tuple[str, int, tuple[int, int]]]:
    """(sequence, position, ids of A and B) of every compared choice, in A's order."""
    x = compared.alignment
    rows = _rows_of(compared, TOKENS_OUT)
    at = np.array(sorted(rows.values(), key=lambda row: x.rows_a[row]), np.int64)
    if not at.size or not (kept_in_full(x.a, x.rows_a[at]) and kept_in_full(x.b, x.rows_b[at])):
        return []
    a, b = _ids(x.a, x.rows_a[at]), _ids(x.b, x.rows_b[at])
    names = {row: key for key, row in rows.items()}
    return [(*names[int(row)], (a[i], b[i])) for i, row in enumerate(at)]


def _ids(index: RowIndex, entries: np.ndarray) -> list[int]:
    dtype = index.records[int(index.record[entries[0]])].dtype
    return [int(token) for token in decode(read_entries(index, entries), dtype)[:, 0]]
