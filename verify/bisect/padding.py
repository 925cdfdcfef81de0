"""NaN and infinities that begin in padding rows, and where they reach rows of the text.

Padding rows are never compared. But attention reads padded keys and values with weight zero, and zero
times NaN is NaN: the first row of the text that shows it is a victim of the operation that made it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from verify.bisect.marks import is_keyed
from verify.bisect.result import Finding, Verdict
from verify.bisect.rules import Measured, Subject, decide
from verify.compare.index import PADDING, RowIndex
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format.schema import Record
from verify.formats import decode, get_format

_CORE = ".attn.out"
_NO_KEYS = "softmax over no key at all gives NaN: a row that may read nothing"


@dataclass(slots=True)
class PaddingFront:
    """A tap of one run whose padding rows are the first that are not finite."""

    side: str
    tap: str
    rows: int
    nan: bool
    """NaN, and no infinity."""
    victims: list[str]
    """Taps that read those rows, in execution order, and are not finite in rows of the text."""


def find_padding_fronts(compared: RowComparison) -> list[PaddingFront]:
    """Fronts that reach rows of the text where the other run is finite.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    x = compared.alignment
    reached = _reached(compared)
    if not reached or not any((i.sequence == PADDING).any() for i in (x.a, x.b)):
        return []
    sides = [("A", x.a, _not_finite(x.a)), ("B", x.b, _not_finite(x.b))]
    found: list[PaddingFront] = []
    for (side, index, mine), (_, other, theirs) in (sides, sides[::-1]):
        text = _not_finite_text(compared, index)
        both = {other.records[number].tap for number in theirs}
        readers = index.records.where(lambda kind: kind.tap in reached and not is_keyed(kind))
        victims = [
            record.tap
            for record in map(index.records.__getitem__, readers.tolist())
            if _reads(record, mine, index, keyed=True)
        ]
        fronts = [
            number
            for number in mine
            if index.records[number].tap not in both
            and not _reads(index.records[number], {*mine, *text}, index)
        ]
        for number in fronts if victims else ():
            count, nan = mine[number]
            tap = index.records[number].tap
            if tap not in [front.tap for front in found]:
                found.append(PaddingFront(side, tap, count, nan, list(dict.fromkeys(victims))))
    return found


def _reached(compared: RowComparison) -> set[str]:
    """Taps with compared rows that are finite in one run alone."""
    x = compared.alignment
    at = np.flatnonzero(compared.compared & (compared.measures.nonfinite > 0))
    return {x.a.records[number].tap for number in np.unique(x.a.record[x.rows_a[at]])}


def _not_finite_text(compared: RowComparison, index: RowIndex) -> set[int]:
    """Records of a run with rows of the text that are finite in one run alone."""
    x = compared.alignment
    rows = x.rows_a if index is x.a else x.rows_b
    return set(index.record[rows[compared.measures.nonfinite > 0]].tolist())


def _not_finite(index: RowIndex) -> dict[int, tuple[int, bool]]:
    """Record -> its padding rows that are not finite, and whether all of that is NaN."""
    found: dict[int, tuple[int, bool]] = {}
    padded = np.unique(index.record[index.sequence == PADDING])
    is_float = index.records.by_kind(lambda kind: get_format(kind.dtype).kind == "float")
    for number in padded[(is_float & index.full)[padded]].tolist():
        record, own = index.records[number], index.entries(number)
        entries = np.arange(own.start, own.stop)
        entries = entries[index.sequence[entries] == PADDING]
        values = decode(read_entries(index, entries), record.dtype)
        bad = ~np.isfinite(values)
        if bad.any():
            found[number] = (int(bad.any(axis=1).sum()), not np.isinf(values).any())
    return found


def _reads(
    record: Record,
    marked: Iterable[int],
    index: RowIndex,
    *,
    keyed: bool = False,
) -> bool:
    """Whether an input of the record is among the marked ones, or (keys are carried) an earlier
    record of the same key tap; ``keyed``: only key inputs, which one row reads of all others."""
    for source in record.inputs:
        if source.kind != "record" or source.seq is None:
            continue
        place = int(index.records.numbers(np.array([record.rank]), np.array([source.seq]))[0])
        holder = index.records[place]
        if keyed and not is_keyed(holder):
            continue
        if place in marked or (is_keyed(holder) and _carried(holder, marked, index)):
            return True
    return False


def _carried(holder: Record, marked: Iterable[int], index: RowIndex) -> bool:
    return any(
        index.records[number].tap == holder.tap and index.records[number].seq < holder.seq
        for number in marked
    )


def state_padding(front: PaddingFront) -> Finding:
    """A defect where an attention core made NaN of finite rows, else open."""
    core = front.tap.endswith(_CORE)
    local = Verdict.DEFECT if core and front.nan else None
    kind = "NaN appears" if front.nan else "values that are not finite appear"
    spread = (
        f"{front.victims[0]} reads such rows with weight zero, and zero times NaN is NaN: rows of the "
        "text are reached there, and the operation there is not at fault"
    )
    return Finding(
        verdict=decide(
            Measured(subject=Subject.PLACE, local=local, infinite=not front.nan),
        ),
        title=f"{front.tap}: {kind} here first, in padding rows of {front.side}",
        reasons=[
            f"{front.rows} padding rows are not finite there; everything they read is finite",
            spread,
            *([_NO_KEYS] if core else []),
        ],
        taps=[front.tap, *front.victims],
        support=f"padding rows of run {front.side}",
        numbers={"padding rows": front.rows},
        settle=["let fully masked rows come out finite, or keep them out of the values read later"],
    )
