"""What a comparison finds: plain data, mergeable, rendered elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec


class RowRef(msgspec.Struct, kw_only=True, frozen=True):
    """One row (sequence, position, visit) and where it stands in either run."""

    sequence: str
    position: int
    visit: int
    step_a: int
    step_b: int
    element: int | None = None
    """Index of the first differing element inside the row (row-major over the other axes)."""


class UlpHistogram(msgspec.Struct, kw_only=True):
    """Counts of ULP distances: ``counts[i]`` elements have a distance in
    ``[edges[i], edges[i + 1])``; bin 0 holds the equal ones. ``incomparable`` counts pairs in which
    NaN stands against something else."""

    edges: list[int]
    counts: list[int]
    incomparable: int = 0


class RelativeHistogram(msgspec.Struct, kw_only=True):
    """Counts of log10(|b - a| / max(|a|, smallest normal)) in bins given by ``edges``; exact
    equality is counted apart in ``equal``."""

    edges: list[float]
    counts: list[int]
    equal: int = 0


class TapComparison(msgspec.Struct, kw_only=True):
    """One tap over all rows that both runs hold."""

    tap: str
    dtype_a: str
    dtype_b: str
    order: int
    """Place of its first record in A's execution order."""
    records: int
    rows: int
    differing_rows: int
    elements: int
    differing_elements: int
    max_abs: float
    """Largest finite |b - a|; NaN where rows of which no words were kept differ."""
    relative_l2: float
    """||b - a|| / ||a|| over finite pairs; inf where a is all zero and b is not. Estimated from
    sketches for rows compared by digest; NaN where neither words nor sketches were kept."""
    ulp_median: float | None
    ulp_p99: float | None
    ulp_max: int | None
    """ULP quantiles over all elements, in units of the coarser of the two dtypes; None for dtypes
    without an order in common."""
    nonfinite_mismatches: int
    """Elements that are NaN or infinite on one side only, or different infinities."""
    signed_zero_only: int
    """Elements that differ only as -0 against +0."""
    nan_payload_only: int = 0
    """Elements that are NaN on both sides with different bits."""
    digest_rows: int = 0
    """Rows compared by their digests, because a run kept no words. ``differing_elements`` counts
    such a differing row as one element."""
    first: RowRef | None
    ulps: UlpHistogram | None = None
    relative: RelativeHistogram | None = None

    @property
    def equal(self) -> bool:
        return self.differing_rows == 0 and self.dtype_a == self.dtype_b


class Unmatched(msgspec.Struct, kw_only=True):
    """Something that only one run holds. It counts against a clean result."""

    side: Literal["a", "b"]
    tap: str
    rows: int
    example: str
    reason: str


class Comparison(msgspec.Struct, kw_only=True):
    """The result of ``verify compare A B``."""

    a: str
    b: str
    complete_a: bool
    complete_b: bool
    taps: list[TapComparison]
    unmatched: list[Unmatched]
    padding_rows: int
    other_context_rows: int = 0
    """Matched rows whose texts differ, because a token before them does: not compared."""
    rows: int
    bytes_read: int
    seconds: float
    notes: list[str] = msgspec.field(default_factory=list)
    window_a: str = ""
    """Steps and rows that the dump of A was limited to; empty: it holds its whole run."""
    window_b: str = ""
