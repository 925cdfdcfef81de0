"""The words of one tap, compared block by block: a task that any worker can do alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment
from verify.compare.elements import Pairing, Words
from verify.compare.measure import Measure, RowMeasures
from verify.compare.pairs import Pair, pairs_of, read_pair
from verify.dumps.format import Dump

_GATHERED_BYTES = 1 << 20
"""Blocks smaller than this are measured together: measuring has a fixed cost a block."""


@dataclass(frozen=True, slots=True)
class WordsTask:
    """Matched rows of one tap and one pair of dtypes, of which both runs kept the words."""

    a: Dump
    b: Dump
    pairs: list[Pair]
    """Their ``at`` counts in this task."""
    sum_sq: NDArray[np.float64]
    """Of each row of A; NaN where it is not known."""
    entries: NDArray[np.int64]
    """Of each row in A, which tells what comes first."""

    @classmethod
    def of(cls, alignment: Alignment, at: NDArray[np.int64]) -> WordsTask:
        """The task of the matched rows ``at``."""
        pairs = list(pairs_of(alignment, at))
        entries = alignment.rows_a[in_pairs(alignment, at)]
        start = 0
        for pair in pairs:
            pair.at, start = np.arange(start, start + len(pair.at)), start + len(pair.at)
        x = alignment
        return cls(x.a.dump, x.b.dump, pairs, x.a.sum_sq[entries], np.asarray(entries, np.int64))


def in_pairs(alignment: Alignment, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Matched rows in the order in which :func:`verify.compare.pairs.pairs_of` cuts them."""
    x = alignment
    keys = x.b.record[x.rows_b[at]], x.a.record[x.rows_a[at]]
    return np.asarray(at[np.lexsort(keys)])


@dataclass(slots=True)
class WordsFound:
    """What a task found."""

    measure: Measure
    rows: RowMeasures
    """One entry a row, in the order of the pairs."""
    bytes_read: int = 0
    first: tuple[int, int] | None = None
    """The first differing row in A's order (its place in the task), and its first element."""


def compare_words(task: WordsTask) -> WordsFound:
    """Compare everything.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    return _Comparing(task).run()


@dataclass(slots=True)
class _Comparing:
    task: WordsTask
    found: WordsFound = field(init=False)
    _gathered: list[tuple[NDArray[np.int64], Words, Words]] = field(default_factory=list)
    _gathered_bytes: int = 0

    def __post_init__(self) -> None:
        pair = self.task.pairs[0]
        measure = Measure(Pairing.of(pair.a.dtype, pair.b.dtype))
        self.found = WordsFound(measure, RowMeasures.zeros(len(self.task.entries)))

    def run(self) -> WordsFound:
        for pair in self.task.pairs:
            for some, words_a, words_b in read_pair(self.task.a, self.task.b, pair):
                self._gather(pair.at[some], words_a, words_b)
        self._add_gathered()
        return self.found

    def _gather(self, at: NDArray[np.int64], a: Words, b: Words) -> None:
        """Collect small blocks, such as the single rows of decode steps, and add them together: those
        with rows of one length, which may grow with the cache."""
        if self._gathered and self._gathered[0][1].shape[1:] != a.shape[1:]:
            self._add_gathered()
        self.found.bytes_read += a.nbytes + b.nbytes
        self._gathered.append((at, a, b))
        self._gathered_bytes += a.nbytes + b.nbytes
        if self._gathered_bytes >= _GATHERED_BYTES:
            self._add_gathered()

    def _add_gathered(self) -> None:
        if len(self._gathered) == 1:
            self._add(*self._gathered[0])
        elif self._gathered:
            at, a, b = (np.concatenate(parts) for parts in zip(*self._gathered, strict=True))
            self._add(at, a, b)
        self._gathered, self._gathered_bytes = [], 0

    def _add(self, at: NDArray[np.int64], a: Words, b: Words) -> None:
        sum_sq = self.task.sum_sq[at]
        measure = self.found.measure
        rows = measure.add(a, b, None if np.isnan(sum_sq).any() else sum_sq)
        self.found.rows[at] = rows
        different = np.flatnonzero(rows.differing)
        if not different.size:
            return
        entries = self.task.entries
        row = int(different[np.argmin(entries[at[different]])])
        if self.found.first is None or entries[at[row]] < entries[self.found.first[0]]:
            differs = measure.pairing.differs(a[row : row + 1], b[row : row + 1])
            self.found.first = (int(at[row]), int(np.argmax(differs)))
