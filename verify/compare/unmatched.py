"""What stays uncompared, and why: every row that one run alone holds is accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment, kind_pairs
from verify.compare.index import PADDING, Names, RowIndex
from verify.compare.result import Unmatched
from verify.dumps.format.schema import Record

Side = Literal["a", "b"]
_Found = dict[tuple[Side, str, str], tuple[int, str]]  # (side, tap, reason) -> rows, example


def incomparable(a: Record, b: Record, words_a: bool, words_b: bool) -> str | None:
    """Why two matched records cannot be compared; None if they can.

    Args:
        words_a, words_b: whether the runs kept the words of the record.
    """
    if a.row_length != b.row_length:
        return f"row length {a.row_length} in A, {b.row_length} in B: {a.shape} against {b.shape}"
    if a.dtype != b.dtype and not (words_a and words_b):
        return f"{a.dtype} against {b.dtype} without the words: digests of two dtypes never match"
    return None


@dataclass(slots=True)
class Lacking:
    """Matched rows whose records cannot be compared."""

    code: NDArray[np.int64]
    """For each matched row the number of its reason, 0 where it can be compared."""
    reasons: list[str]


def incomparable_rows(alignment: Alignment) -> Lacking:
    """Which matched rows cannot be compared, by their records."""
    a, b = alignment.a, alignment.b
    pairs, inverse = kind_pairs(alignment, slice(None))
    texts = Names()
    texts.code(None)
    codes = [
        texts.code(incomparable(a.records[x], b.records[y], bool(a.full[x]), bool(b.full[y])))
        for x, y in pairs
    ]
    if not any(codes):
        return Lacking(np.broadcast_to(np.int64(0), len(inverse)), texts.names())
    return Lacking(np.array(codes, np.int64)[inverse], texts.names())


def list_unmatched(
    alignment: Alignment,
    lacking: Lacking,
    apart: NDArray[np.bool_],
    chosen: tuple[NDArray[np.bool_], NDArray[np.bool_]],
) -> list[Unmatched]:
    """Rows without a counterpart that they can be compared with, by side, tap and reason.

    Args:
        lacking: as :func:`incomparable_rows`.
        apart: matched rows of another context, which are accounted for elsewhere.
        chosen: for each record of A and of B whether its tap was asked for.
    """
    found: _Found = {}
    for side, index, other, alone, repeated in _sides(alignment):
        wanted = chosen[0 if side == "a" else 1]
        _add_alone(found, side, index, other, alone[wanted[index.record[alone]]])
        repeats = repeated[wanted[index.record[repeated]]]
        _add(found, side, index, repeats, "its identity occurs several times in the run")
    wanted = chosen[0][alignment.a.record[alignment.rows_a]]
    for code, reason in enumerate(lacking.reasons):
        if code:
            some = np.flatnonzero(wanted & ~apart & (lacking.code == code))
            _add_matched(found, alignment, some, reason)
    return [
        Unmatched(side=side, tap=tap, rows=rows, example=example, reason=reason)
        for (side, tap, reason), (rows, example) in found.items()
    ]


def _sides(
    alignment: Alignment,
) -> Iterator[tuple[Side, RowIndex, RowIndex, NDArray[np.int64], NDArray[np.int64]]]:
    x = alignment
    yield "a", x.a, x.b, x.alone_a, x.repeated_a
    yield "b", x.b, x.a, x.alone_b, x.repeated_b


def _add_matched(
    found: _Found,
    alignment: Alignment,
    at: NDArray[np.int64],
    reason: str,
) -> None:
    _add(found, "a", alignment.a, alignment.rows_a[at], reason)
    _add(found, "b", alignment.b, alignment.rows_b[at], reason)


def _add_alone(
    found: _Found, side: Side, index: RowIndex, other: RowIndex, entries: NDArray[np.int64]
) -> None:
    if not entries.size:
        return
    name = "B" if side == "a" else "A"
    ranks, mine = np.unique(other.records.rank), index.record[entries]
    taps = set(other.records.tap_names)
    sequences = np.unique(other.sequence[other.sequence != PADDING])
    texts = [
        f"{name} holds no row there",
        f"{name} computed it less often",
        f"{name} ran no such sequence",
        f"{name} has no such tap",
        f"{name} has no such rank",
    ]
    reason = _is_elsewhere(index, other, entries).astype(np.int64)
    reason[~np.isin(index.sequence[entries], sequences)] = 2
    reason[~index.records.by_kind(lambda kind: kind.tap in taps)[mine]] = 3
    reason[~np.isin(index.records.rank, ranks)[mine]] = 4
    for number, text in enumerate(texts):
        _add(found, side, index, entries[reason == number], text)


def _is_elsewhere(
    index: RowIndex, other: RowIndex, entries: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the other run holds the (tap, sequence, position) at another occurrence or visit."""
    taps, positions = Names(), np.unique(index.position[entries])

    def keys(of: RowIndex, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """One integer a row; -1 where its position is none of ``positions``."""
        codes = of.records.by_kind(lambda kind: taps.code(kind.tap), np.int64)
        place = np.minimum(np.searchsorted(positions, of.position[at]), len(positions) - 1)
        found = codes[of.record[at]] * len(of.sequences) + of.sequence[at]
        found = found * len(positions) + place
        found[positions[place] != of.position[at]] = -1
        return np.asarray(found, np.int64)

    return np.isin(keys(index, entries), keys(other, np.flatnonzero(other.sequence != PADDING)))


def _add(
    found: _Found,
    side: Side,
    index: RowIndex,
    entries: NDArray[np.int64],
    reason: str,
) -> None:
    """Count rows under (side, tap, reason), with the first of them in execution order."""
    if not entries.size:
        return
    taps = Names()
    codes = index.records.by_kind(lambda kind: taps.code(kind.tap), np.int64)[index.record[entries]]
    first = np.full(len(taps.codes), len(index), np.int64)
    np.minimum.at(first, codes, entries)
    counts = np.bincount(codes, minlength=len(first))
    for code in np.argsort(first, kind="stable").tolist():
        if counts[code]:
            key = (side, taps.names()[code], reason)
            before, shown = found.get(key, (0, index.name(int(first[code]))))
            found[key] = (before + int(counts[code]), shown)
