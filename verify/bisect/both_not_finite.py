"""NaN and infinities that both runs hold: equal bits there say nothing about either run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.origins import find_fronts
from verify.bisect.result import Finding
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.taps import LOGITS
from verify.compare.align import rows_by_pair
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.schema import Record
from verify.formats import decode, get_format

Rows = NDArray[np.int64]


@dataclass(slots=True)
class _Marked:
    rows: list[Rows]
    """Numbers into the alignment."""
    taps: dict[str, int]
    """Tap -> its rows that are not finite in either run."""
    infinite: dict[str, int]
    """Tap -> elements that are infinite in A."""


def state_both_not_finite(compared: RowComparison) -> list[Finding]:
    """One finding where both runs hold NaN or infinities at the same rows.

    The words of all taps are read only if the last outputs of some step are not finite: what is
    lost on the way does no harm.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    last = _last_taps(compared)
    if not _scan(compared, last).taps:
        return []
    marked = _scan(compared, None)
    fronts = find_fronts(compared, np.sort(np.concatenate(marked.rows)))
    first = fronts[0].tap if fronts else next(iter(marked.taps))
    infinite = marked.infinite.get(first, 0)
    kind = f"infinities there ({infinite:,} of its elements)" if infinite else "NaN stands there"
    held = f"{sum(marked.taps.values()):,} rows of {len(marked.taps)} taps"
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.PLACE, infinite=infinite > 0)),
            title=f"Both runs are not finite from {first} on",
            reasons=[
                f"{kind}, in both runs, while everything that these rows read is finite",
                f"{held} hold NaN or infinities in both runs: that they agree says nothing",
            ],
            taps=[front.tap for front in fronts] or [first],
            numbers={"rows": sum(marked.taps.values()), "taps": len(marked.taps)},
            settle=["run both in a format with a wider range, such as bfloat16 or float32"],
        )
    ]


def _last_taps(compared: RowComparison) -> set[str]:
    """The logits, and the last floating-point tap of each step of A."""
    records = compared.alignment.a.records
    numbers = records.where(_holds)
    steps = records.step[numbers]
    last = numbers[np.append(steps[1:] != steps[:-1], True)] if numbers.size else numbers
    taps = records.by_kind(lambda kind: kind.tap, object)
    return {LOGITS, *taps[last].tolist()}


def _scan(compared: RowComparison, taps: set[str] | None) -> _Marked:
    """Rows of these taps (None: of all) that are not finite in both runs."""
    x = compared.alignment
    found = _Marked([], {}, {})
    # A row that one run alone has in this state is a difference, and told as such.
    wanted = x.a.is_of(lambda kind: _holds(kind) and (taps is None or kind.tap in taps))
    wanted[:-1] &= x.a.full
    same = compared.compared & (compared.measures.nonfinite == 0)
    same &= wanted[x.a.record[x.rows_a]]
    for number, _, at in rows_by_pair(x, np.flatnonzero(same)):
        record = x.a.records[number]
        values = decode(read_entries(x.a, x.rows_a[at]), record.dtype)
        bad = ~np.isfinite(values).all(axis=1)
        if bad.any():
            found.rows.append(at[bad])
            found.taps[record.tap] = found.taps.get(record.tap, 0) + int(bad.sum())
            infinite = int(np.isinf(values).sum())
            found.infinite[record.tap] = found.infinite.get(record.tap, 0) + infinite
    return found


def _holds(record: Record) -> bool:
    """Floating-point values that should be finite; masks rightly hold infinities."""
    return get_format(record.dtype).kind == "float" and "mask" not in record.tap
