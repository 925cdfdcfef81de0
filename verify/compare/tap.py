"""One tap over all rows that both runs hold."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment, record_pairs
from verify.compare.elements import Pairing, Words
from verify.compare.measure import Measure, RowMeasures
from verify.compare.pairs import Pair, pairs_of, read_pair
from verify.compare.result import RowRef, TapComparison

_GATHERED_BYTES = 1 << 20
"""Blocks smaller than this are measured together: measuring has a fixed cost a block."""


class TapMeasure:
    """Compares the rows ``at`` (numbers into the alignment), all of one tap and dtype pair.

    Args:
        alignment: the matched rows of the two runs.
        measures: one entry a matched row; those of this tap are filled in.
    """

    def __init__(
        self, alignment: Alignment, at: NDArray[np.int64], measures: RowMeasures | None
    ) -> None:
        self.alignment = alignment
        self.at = at
        self.measures = measures
        self.record_a = alignment.a.records[int(alignment.a.record[alignment.rows_a[at[0]]])]
        self.record_b = alignment.b.records[int(alignment.b.record[alignment.rows_b[at[0]]])]
        self.measure = Measure(Pairing.of(self.record_a.dtype, self.record_b.dtype))
        self.bytes_read = 0
        self.digest_rows = 0
        self._digest_diff_rows = 0
        self._first: tuple[int, int, int | None] | None = None  # entry of A, of B, element
        self._gathered: list[tuple[NDArray[np.int64], Words, Words]] = []
        self._gathered_bytes = 0

    def run(self) -> TapComparison:
        """Compare everything.

        Raises:
            CorruptDumpError: words are not those that were stored.
        """
        a, b = self.alignment.a.dump, self.alignment.b.dump
        for pair in pairs_of(self.alignment, self.at):
            if a.holder(pair.a).kept == "full" == b.holder(pair.b).kept:
                for some, words_a, words_b in read_pair(a, b, pair):
                    self._gather(pair.at[some], words_a, words_b)
            else:
                self._add_digests(pair)
        self._add_gathered()
        return self._result()

    def _gather(self, at: NDArray[np.int64], a: Words, b: Words) -> None:
        """Collect small blocks, such as the single rows of decode steps, and add them together."""
        self.bytes_read += a.nbytes + b.nbytes
        self._gathered.append((at, a, b))
        self._gathered_bytes += a.nbytes + b.nbytes
        if self._gathered_bytes >= _GATHERED_BYTES:
            self._add_gathered()

    def _add_gathered(self) -> None:
        if len(self._gathered) == 1:
            self._add_words(*self._gathered[0])
        elif self._gathered:
            at, a, b = (np.concatenate(parts) for parts in zip(*self._gathered, strict=True))
            self._add_words(at, a, b)
        self._gathered, self._gathered_bytes = [], 0

    def _add_words(self, at: NDArray[np.int64], a: Words, b: Words) -> None:
        entries = self.alignment.rows_a[at]
        sum_sq = self.alignment.a.sum_sq[entries]
        found = self.measure.add(a, b, None if np.isnan(sum_sq).any() else sum_sq)
        self._keep(at, found)
        different = np.flatnonzero(found.differing)
        if different.size:
            row = int(different[np.argmin(entries[different])])
            element = int(
                np.argmax(self.measure.pairing.differs(a[row : row + 1], b[row : row + 1]))
            )
            self._note_first(int(at[row]), element)

    def _add_digests(self, pair: Pair) -> None:
        """Rows of which a run kept no words compare by digest, and their size by sketch."""
        a, b = self.alignment.a, self.alignment.b
        entries_a, entries_b = self.alignment.rows_a[pair.at], self.alignment.rows_b[pair.at]
        differing = a.digest[entries_a] != b.digest[entries_b]
        found = RowMeasures.zeros(len(pair.at))
        found.differing[:] = differing  # at least one element each
        found.ref_sq[:] = a.sum_sq[entries_a]
        found.diff_sq[:] = np.where(differing, _sketched(self.alignment, pair), 0.0)
        self._keep(pair.at, found)
        self.digest_rows += len(pair.at)
        self._digest_diff_rows += int(differing.sum())
        self.measure.rows += len(pair.at)
        self.measure.differing_rows += int(differing.sum())
        self.measure.elements += len(pair.at) * pair.a.row_length
        self.measure.differing_elements += int(differing.sum())
        self.measure.diff_sq += float(found.diff_sq.sum())
        self.measure.ref_sq += float(found.ref_sq.sum())
        if differing.any():
            self._note_first(int(pair.at[differing][np.argmin(entries_a[differing])]), None)

    def _keep(self, at: NDArray[np.int64], found: RowMeasures) -> None:
        if self.measures is not None:
            self.measures[at] = found

    def _note_first(self, at: int, element: int | None) -> None:
        entry_a, entry_b = int(self.alignment.rows_a[at]), int(self.alignment.rows_b[at])
        if self._first is None or entry_a < self._first[0]:
            self._first = (entry_a, entry_b, element)

    def _result(self) -> TapComparison:
        m, by_digest = self.measure, self._digest_diff_rows > 0
        ordered = m.pairing.common is not None and self.digest_rows < m.rows and not by_digest
        return TapComparison(
            tap=self.record_a.tap,
            dtype_a=self.record_a.dtype,
            dtype_b=self.record_b.dtype,
            order=int(self.alignment.a.record[self.alignment.rows_a[self.at]].min()),
            records=len(np.unique(self.alignment.a.record[self.alignment.rows_a[self.at]])),
            rows=m.rows,
            differing_rows=m.differing_rows,
            elements=m.elements,
            differing_elements=m.differing_elements,
            max_abs=math.nan if by_digest else m.max_abs,
            relative_l2=m.relative_l2,
            ulp_median=m.ulps.quantile(0.5) if ordered else None,
            ulp_p99=m.ulps.quantile(0.99) if ordered else None,
            ulp_max=m.ulps.maximum if ordered else None,
            nonfinite_mismatches=m.nonfinite,
            nan_payload_only=m.nan_payload_only,
            signed_zero_only=m.signed_zero_only,
            digest_rows=self.digest_rows,
            first=self._first_ref(),
            ulps=m.ulps.histogram() if ordered else None,
            relative=m.relative.histogram() if ordered else None,
        )

    def _first_ref(self) -> RowRef | None:
        if self._first is None:
            return None
        a, b = self.alignment.a, self.alignment.b
        entry_a, entry_b, element = self._first
        return RowRef(
            sequence=a.sequences[int(a.sequence[entry_a])],
            position=int(a.position[entry_a]),
            visit=int(a.visit[entry_a]),
            step_a=a.records[int(a.record[entry_a])].step,
            step_b=b.records[int(b.record[entry_b])].step,
            element=element,
        )


def _sketched(alignment: Alignment, pair: Pair) -> NDArray[np.float64]:
    """||b - a||^2 estimated from the sketches (docs/digests.md); NaN where none were kept."""
    a = alignment.a.dump.rows(pair.a).sketch
    b = alignment.b.dump.rows(pair.b).sketch
    if a is None or b is None:
        return np.full(len(pair.at), np.nan)
    difference = b[pair.rows_b].astype(np.float64) - a[pair.rows_a].astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


def by_tap(alignment: Alignment, at: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Split matched rows into those of one tap and one pair of dtypes, in A's execution order."""
    a, b = alignment.a, alignment.b
    groups: dict[tuple[str, str, str], int] = {}
    pairs, inverse = record_pairs(alignment, at)
    tap_of_pair = [
        groups.setdefault((a.records[x].tap, a.records[x].dtype, b.records[y].dtype), len(groups))
        for x, y in pairs
    ]
    codes = np.array([*tap_of_pair, 0], np.int64)[inverse]
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(1, len(groups)))
    yield from (at[some] for some in np.split(order, cuts) if some.size)
