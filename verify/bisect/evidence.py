"""What can be said about the place where a difference begins, from its words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.origins import Place
from verify.bisect.result import Origin
from verify.compare.elements import Pairing, Words, floating_values
from verify.compare.pairs import pairs_of, read_pair
from verify.compare.result import RowRef
from verify.compare.run import RowComparison
from verify.compare.stand_ins import stands_for
from verify.dumps.format.schema import Record
from verify.forensics.casts import Cast, find_casts
from verify.forensics.describe import describe
from verify.forensics.pair import Pair
from verify.forensics.support import describe_elements, describe_rows
from verify.formats import get_format

_BYTES = 32 << 20
"""Words of one run that the detectors look at for one place, its first rows before others."""


@dataclass(slots=True)
class Evidence:
    """An origin, and what the detectors found there."""

    origin: Origin
    place: Place
    casts: list[Cast]
    support: str
    nonfinite: int
    """Elements that are NaN or infinite on one side only."""


def examine(compared: RowComparison, place: Place, proven: bool) -> Evidence:
    """Look at the words of the rows of a place.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    alignment = compared.alignment
    at = np.sort(place.at)
    first = int(at[np.argmin(alignment.rows_a[at])])
    a = alignment.a.records[int(alignment.a.record[alignment.rows_a[first]])]
    b = alignment.b.records[int(alignment.b.record[alignment.rows_b[first]])]
    looked = _readable(compared, at)
    touched = np.zeros(a.row_length, np.bool_)
    casts: list[Cast] = []
    largest = math.nan
    if looked.size:
        if not stands_for(a):
            casts = find_casts(_blocks(compared, looked), get_format(a.dtype), get_format(b.dtype))
        touched, largest = _touched(compared, looked, Pairing.of(a.dtype, b.dtype), touched)
    rows = _describe_rows(compared, at, place.tap)
    support = (
        rows if not touched.any() else f"{rows}; {describe_elements(touched, a.axes, a.shape)}"
    )
    origin = Origin(
        tap=place.tap,
        step_a=a.step,
        step_b=b.step,
        order=int(alignment.a.record[alignment.rows_a[first]]),
        proven=proven,
        inputs=place.sources,
        interval=a.ops if a.ops == b.ops else [f"A: {_joined(a)}", f"B: {_joined(b)}"],
        rows=support,
        first=_first(compared, first),
        measure=_measure(compared, at, largest),
        attributes_a=a.attributes,
        attributes_b=b.attributes,
        fits=[cast.describe() for cast in casts] or _fits(compared, looked, a, b),
        judged=_judged(place, proven),
    )
    return Evidence(origin, place, casts, support, int(compared.measures.nonfinite[at].sum()))


_FIT_ELEMENTS = 1 << 20
"""Elements that the detectors of other differences than casts look at: they need no more."""


def _fits(compared: RowComparison, at: NDArray[np.int64], a: Record, b: Record) -> list[str]:
    """What the difference is, where the inputs are equal and no cast explains it."""
    fmt = get_format(a.dtype)
    if a.dtype != b.dtype or fmt.kind != "float" or not at.size:
        return []
    some = at[: max(1, _FIT_ELEMENTS // max(1, a.row_length))]
    blocks = list(_blocks(compared, some))
    words = [np.concatenate([block[side] for block in blocks]) for side in (0, 1)]
    x, y = (floating_values(side, fmt) for side in words)
    return [fit.describe() for fit in describe(Pair(x, y, fmt, a.axes, tuple(a.shape)))]


def _judged(place: Place, proven: bool) -> str:
    if not proven:
        return "first observed here: " + "; ".join(place.missing or ["inputs were not compared"])
    if place.whole:
        return "every row of every recorded input is equal"
    return "every input row up to the position is equal, in a model that is causal"


def _joined(record: Record) -> str:
    return ", ".join(record.ops) or "no operation recorded"


def _readable(compared: RowComparison, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first rows whose words both runs kept, up to :data:`_BYTES`."""
    x = compared.alignment
    kept: list[NDArray[np.int64]] = []
    left = _BYTES
    for pair in pairs_of(x, at):
        full = x.a.dump.holder(pair.a).kept == "full" == x.b.dump.holder(pair.b).kept
        size = 8 * max(1, pair.a.row_length)
        if full and left >= size:
            kept.append(pair.at[: left // size])
            left -= size * len(kept[-1])
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _blocks(compared: RowComparison, at: NDArray[np.int64]) -> Iterator[tuple[Words, Words]]:
    x = compared.alignment
    for pair in pairs_of(x, at):
        for _, words_a, words_b in read_pair(x.a.dump, x.b.dump, pair):
            yield words_a, words_b


def _touched(
    compared: RowComparison, at: NDArray[np.int64], pairing: Pairing, touched: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], float]:
    """Which elements differ in any of the rows, and the largest finite |b - a|."""
    largest = 0.0
    for words_a, words_b in _blocks(compared, at):
        touched |= pairing.differs(words_a, words_b).any(axis=0)
        a, b = pairing.values(words_a, words_b)
        with np.errstate(invalid="ignore"):
            size = np.abs(b - a)
        largest = max(largest, float(size[np.isfinite(size)].max(initial=0.0)))
    return touched, largest


def _describe_rows(compared: RowComparison, at: NDArray[np.int64], tap: str) -> str:
    """Which of the compared rows of the tap these are."""
    x = compared.alignment
    index = x.a
    of_tap = index.is_of(lambda kind: kind.tap == tap)
    every = x.rows_a[compared.compared & of_tap[index.record[x.rows_a]]]
    mine = x.rows_a[at]
    sequences = np.unique(index.sequence[mine])
    every = every[np.isin(index.sequence[every], sequences)]
    return describe_rows(index.position[mine], index.position[every], len(sequences))


def _first(compared: RowComparison, at: int) -> RowRef:
    x = compared.alignment
    entry_a, entry_b = int(x.rows_a[at]), int(x.rows_b[at])
    return RowRef(
        sequence=x.a.sequences[int(x.a.sequence[entry_a])],
        position=int(x.a.position[entry_a]),
        visit=int(x.a.visit[entry_a]),
        step_a=x.a.records[int(x.a.record[entry_a])].step,
        step_b=x.b.records[int(x.b.record[entry_b])].step,
    )


def _measure(
    compared: RowComparison, at: NDArray[np.int64], largest: float
) -> dict[str, float | int | str | None]:
    m = compared.measures
    diff, reference = float(m.diff_sq[at].sum()), float(m.ref_sq[at].sum())
    size = math.sqrt(diff / reference) if reference > 0 else (math.inf if diff > 0 else 0.0)
    found: dict[str, float | int | str | None] = {
        "rows": len(at),
        "differing elements": int(m.differing[at].sum()),
        "relative L2": size,
        "max abs": largest,
        "max ULP": int(m.max_ulp[at].max()),
    }
    if nonfinite := int(m.nonfinite[at].sum()):
        found["non-finite on one side"] = nonfinite
    return found
