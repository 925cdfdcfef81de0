"""Which tokens the two runs chose at the same place of the same text, and how closely."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.logits import Ranking, rank
from verify.bisect.result import TokenPosition, TopToken
from verify.bisect.taps import LOGITS
from verify.compare.elements import Pairing
from verify.compare.index import RowIndex
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.tokens import TOKENS_OUT, TokenTrack
from verify.formats import decode, get_format

MAX_POSITIONS = 4096
"""Positions whose logits are read; flips beyond are still found."""


@dataclass(slots=True)
class TokenReport:
    """All compared choices, in the order of A's execution."""

    positions: list[TokenPosition]
    first_flips: list[TokenPosition]
    """The first differing choice of each sequence."""
    equal_logits: list[TokenPosition]
    """Differing choices from logits that are equal in every bit."""
    notes: list[str]

    @property
    def first(self) -> TokenPosition | None:
        return self.first_flips[0] if self.first_flips else None


def compare_tokens(compared: RowComparison) -> TokenReport:
    """Choices at positions with the same text before them.

    Raises:
        CorruptDumpError: a tensor is not what was stored.
    """
    tracks = compared.alignment.a.dump.tokens(), compared.alignment.b.dump.tokens()
    logits = _rows_of(compared, LOGITS)
    choices = _choices(compared)
    report = TokenReport([], [], [], [])
    flipped: set[str] = set()
    for number, (sequence, position, ids) in enumerate(choices):
        differs = ids[0] != ids[1]
        if number >= MAX_POSITIONS and not (differs and sequence not in flipped):
            continue
        at = logits.get((sequence, position))
        found = _Position(compared, tracks, sequence, position, ids).describe(at)
        report.positions.append(found)
        if not differs:
            continue
        if at is not None and not compared.measures.differing[at]:
            report.equal_logits.append(found)
        if sequence not in flipped:
            flipped.add(sequence)
            report.first_flips.append(found)
    if len(choices) > MAX_POSITIONS:
        report.notes.append(f"margins of the first {MAX_POSITIONS} of {len(choices)} choices")
    return report


def _rows_of(compared: RowComparison, tap: str) -> dict[tuple[str, int], int]:
    """(sequence, position) -> compared row (number in the alignment), the last visit."""
    x = compared.alignment
    of_tap = np.array([record.tap == tap for record in x.a.records] or [False], np.bool_)
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
    if not at.size or not (_kept(x.a, x.rows_a[at]) and _kept(x.b, x.rows_b[at])):
        return []
    a, b = _ids(x.a, x.rows_a[at]), _ids(x.b, x.rows_b[at])
    names = {row: key for key, row in rows.items()}
    return [(*names[int(row)], (a[i], b[i])) for i, row in enumerate(at)]


def _kept(index: RowIndex, entries: NDArray[np.int64]) -> bool:
    numbers = np.unique(index.record[entries])
    return all(index.dump.holder(index.records[n]).kept == "full" for n in numbers)


def _ids(index: RowIndex, entries: NDArray[np.int64]) -> list[int]:
    dtype = index.records[int(index.record[entries[0]])].dtype
    return [int(token) for token in decode(read_entries(index, entries), dtype)[:, 0]]


@dataclass(slots=True)
class _Position:
    compared: RowComparison
    tracks: tuple[dict[str, TokenTrack], dict[str, TokenTrack]]
    sequence: str
    position: int
    ids: tuple[int, int]

    def describe(self, at: int | None) -> TokenPosition:
        """``at``: row of the logits in the alignment; None where they were not compared."""
        a, b, shift, pair = self._rankings(at)
        track = self.tracks[0].get(self.sequence)
        return TokenPosition(
            sequence=self.sequence,
            position=self.position,
            index=self.position - (track.first_choice if track else -1),
            a=self._candidates(a),
            b=self._candidates(b),
            chosen_a=self.ids[0],
            chosen_b=self.ids[1],
            margin_a=a.margin,
            margin_b=b.margin,
            margin_a_steps=a.margin_steps,
            margin_b_steps=b.margin_steps,
            tie_a=a.tie,
            tie_b=b.tie,
            logit_shift=shift,
            pair_shift=pair,
            same_context=True,
        )

    def _rankings(self, at: int | None) -> tuple[Ranking, Ranking, float, float]:
        nothing = Ranking([], [], math.nan)
        x = self.compared.alignment
        if at is None:
            return nothing, nothing, math.nan, math.nan
        entry_a, entry_b = x.rows_a[at : at + 1], x.rows_b[at : at + 1]
        if not (_kept(x.a, entry_a) and _kept(x.b, entry_b)):
            return nothing, nothing, math.nan, math.nan
        dtype_a = x.a.records[int(x.a.record[entry_a[0]])].dtype
        dtype_b = x.b.records[int(x.b.record[entry_b[0]])].dtype
        words_a, words_b = read_entries(x.a, entry_a), read_entries(x.b, entry_b)
        values_a, values_b = Pairing.of(dtype_a, dtype_b).values(words_a, words_b)
        a, b = rank(values_a[0], get_format(dtype_a)), rank(values_b[0], get_format(dtype_b))
        return a, b, _shift(values_a[0], values_b[0]), self._pair_shift(values_a[0], values_b[0], a)

    def _pair_shift(
        self, a: NDArray[np.float64], b: NDArray[np.float64], ranking: Ranking
    ) -> float:
        """(b[x] - b[y]) - (a[x] - a[y]); y is A's runner-up where the choices agree."""
        x, y = self.ids
        if x == y:
            others = [token for token in ranking.ids if token != x]
            y = others[0] if others else x
        if not (0 <= x < len(a) and 0 <= y < len(a)):
            return math.nan
        with np.errstate(invalid="ignore"):  # infinite logits have no shift
            return float((b[x] - b[y]) - (a[x] - a[y]))

    def _candidates(self, ranking: Ranking) -> list[TopToken]:
        x = self.compared.alignment
        texts = {
            **x.b.dump.manifest.workload.token_text,
            **x.a.dump.manifest.workload.token_text,
        }
        return [
            TopToken(id=token, text=texts.get(str(token), ""), logit=logit)
            for token, logit in zip(ranking.ids, ranking.logits, strict=True)
        ]


def _shift(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """max |b - a|; infinite where one side alone is NaN or infinite."""
    with np.errstate(invalid="ignore"):
        size = np.abs(b - a)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    size = np.where(same, 0.0, np.where(np.isnan(size), math.inf, size))
    return float(size.max(initial=0.0))
