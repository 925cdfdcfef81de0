"""One tap over all rows that both runs hold."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment, kind_pairs
from verify.compare.digests import DigestRows
from verify.compare.elements import Pairing
from verify.compare.measure import Measure, RowMeasures
from verify.compare.result import RowRef, TapComparison
from verify.compare.words import WordsFound, WordsTask, in_pairs


class TapMeasure:
    """Compares the rows ``at`` (numbers into the alignment), all of one tap and dtype pair.

    Args:
        alignment: the matched rows of the two runs.
        measures: one entry a matched row; those of this tap are filled in.
        digests: of the rows of which a run kept no words.
    """

    def __init__(
        self,
        alignment: Alignment,
        at: NDArray[np.int64],
        measures: RowMeasures | None,
        digests: DigestRows,
    ) -> None:
        self.alignment = alignment
        self.digests = digests
        self.at = at
        self.measures = measures
        self.record_a = alignment.a.records[int(alignment.a.record[alignment.rows_a[at[0]]])]
        self.record_b = alignment.b.records[int(alignment.b.record[alignment.rows_b[at[0]]])]
        self.measure = Measure(Pairing.of(self.record_a.dtype, self.record_b.dtype))
        self.bytes_read = 0
        self.digest_rows = 0
        self._digest_diff_rows = 0
        self._first: tuple[int, int, int | None] | None = None  # entry of A, of B, element
        a, b = alignment.a, alignment.b
        self._full = a.full[a.record[alignment.rows_a[at]]]
        self._full &= b.full[b.record[alignment.rows_b[at]]]

    @property
    def words(self) -> NDArray[np.int64]:
        """The rows of which both runs kept the words."""
        return self.at[self._full]

    def task(self) -> WordsTask:
        """What has to be read for :attr:`words`."""
        return WordsTask.of(self.alignment, self.words)

    def result(self, found: WordsFound | None) -> TapComparison:
        """The comparison of the tap; ``found``: what came out of its task."""
        if found is not None:
            self._take(found)
        if not self._full.all():
            self._add_digests(self.at[~self._full])
        return self._result()

    def _take(self, found: WordsFound) -> None:
        self.measure, self.bytes_read = found.measure, found.bytes_read
        at = in_pairs(self.alignment, self.words)
        if self.measures is not None:
            self.measures[at] = found.rows
        if found.first is not None:
            row, element = found.first
            self._note_first(int(at[row]), element)

    def _add_digests(self, at: NDArray[np.int64]) -> None:
        """Rows of which a run kept no words."""
        entries = self.alignment.rows_a[at]
        ref_sq = self.alignment.a.sum_sq[entries]
        differing = at[self.digests.differing[at]]
        diff_sq = self.digests.diff_sq[differing]
        if self.measures is not None:  # the rest of it is zero
            known = at if np.isfinite(ref_sq).any() else differing
            self.measures.ref_sq[known] = self.alignment.a.sum_sq[self.alignment.rows_a[known]]
            self.measures.differing[differing] = 1  # at least one element each
            self.measures.diff_sq[differing] = diff_sq
        self.digest_rows += len(at)
        self._digest_diff_rows += len(differing)
        self.measure.rows += len(at)
        self.measure.differing_rows += len(differing)
        self.measure.elements += len(at) * self.record_a.row_length
        self.measure.differing_elements += len(differing)
        self.measure.diff_sq += float(diff_sq.sum())
        self.measure.ref_sq += float(ref_sq.sum())
        if differing.size:
            first = np.argmin(self.alignment.rows_a[differing])
            self._note_first(int(differing[first]), None)

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


def by_tap(alignment: Alignment, at: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Split matched rows into those of one tap and one pair of dtypes, in A's execution order."""
    a, b = alignment.a, alignment.b
    groups: dict[tuple[str, str, str], int] = {}
    pairs, inverse = kind_pairs(alignment, at)
    of_pair = [
        groups.setdefault((a.records[x].tap, a.records[x].dtype, b.records[y].dtype), len(groups))
        for x, y in pairs
    ]
    codes = np.array([*of_pair, 0], np.min_scalar_type(len(groups)))[inverse]
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    yield from (at[some] for some in np.split(order, cuts) if some.size)
