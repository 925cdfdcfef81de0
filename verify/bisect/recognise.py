"""What a tap holds that no operation read: another tensor, another moment, other axes.

Each recogniser looks at a few rows that both runs kept and says what it sees, or nothing. They
explain a capture; none of them is a ground for blaming an operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verify.bisect.marks import is_keyed
from verify.bisect.sample import Sample
from verify.compare.elements import Pairing
from verify.compare.index import PADDING, RowIndex
from verify.compare.pairs import read_entries
from verify.forensics.support import free_axes

Values = NDArray[np.float64]

_ELEMENTS = 1 << 22
_TERMS = 3
"""Recorded tensors that a difference may be the sum of: stream, attention and MLP of a layer."""

_EXPLAINED = 8.0
"""A reordering, a sum or a norm explains a difference that it reduces by this factor: rounding of
bfloat16 in earlier operations stays behind, and thousands of elements do not agree by chance."""


def describe(rows: Sample) -> list[str]:
    """What the rows are, in words; empty where nothing is recognised."""
    for recognise in (_copy_of_another, _other_moment, layout, _sum, _normed):
        if found := recognise(rows):
            return [found]
    return []


def _copy_of_another(rows: Sample) -> str:
    """All rows of one side are those of another tap of the same run, at the same positions."""
    for side, other in (("A", "B"), ("B", "A")):
        taps = _holders(rows, side) - _holders(rows, other)
        if taps:
            return (
                f"{side}'s {rows.record_a.tap} is, bit for bit, {side}'s own {min(taps, key=len)}"
            )
    return ""


def _holders(rows: Sample, side: str) -> set[str]:
    """Other taps of a run whose rows at the same positions have the same digests."""
    index, entries = rows.index(side), rows.entries(side)
    own = {index.records[int(n)].tap for n in index.record[entries]}
    matching = np.flatnonzero(np.isin(index.digest, index.digest[entries]))
    found: dict[tuple[int, int, int], set[str]] = {}
    for entry in matching.tolist():
        record = index.records[int(index.record[entry])]
        if record.tap not in own and record.row_length == rows.record_a.row_length:
            found.setdefault(_key(index, entry), set()).add(record.tap)
    sets = [found.get(_key(index, entry), set()) for entry in entries.tolist()]
    return set.intersection(*sets) if sets and np.any(rows.a) else set()


def _key(index: RowIndex, entry: int) -> tuple[int, int, int]:
    return int(index.sequence[entry]), int(index.position[entry]), int(index.digest[entry])


def _other_moment(rows: Sample) -> str:
    """The rows of one side are those of the same tap at other positions: overwritten since."""
    for side, other in (("A", "B"), ("B", "A")):
        here, there = _moments(rows, side), _moments(rows, other)
        if here and not there:
            return (
                f"{side}'s {rows.record_a.tap} holds the same bits at position {here[0]} and at "
                f"{here[1]}: a view that was overwritten before it was copied"
            )
    return ""


def _moments(rows: Sample, side: str) -> tuple[int, int] | None:
    index, entries = rows.index(side), rows.entries(side)
    own = index.is_of(lambda kind: kind.tap == rows.record_a.tap)
    for entry in entries.tolist():
        same = np.flatnonzero(index.digest == index.digest[entry])
        same = same[own[index.record[same]] & (index.position[same] != index.position[entry])]
        same = same[index.sequence[same] != PADDING]
        if same.size:
            return int(index.position[entry]), int(index.position[same[0]])
    return None


def layout(rows: Sample) -> str:
    """One side's values are the other's in another order of the axes."""
    for axes, order, held, other in _orders(rows):
        with np.errstate(invalid="ignore"):
            left, size = np.linalg.norm(order - held), np.linalg.norm(other - held)
        if left <= size / _EXPLAINED:
            return (
                f"B's {rows.record_a.tap} is A's with the axes {axes} exchanged (residual "
                f"{left / size:.1g} of the difference)"
            )
    if _permuted(rows):
        return f"each row of B's {rows.record_a.tap} is a permutation of A's"
    return ""


def _permuted(rows: Sample) -> bool:
    """Each row holds the other's values in another order. Only to a few roundings: two long rows of
    one distribution are alike when sorted; and only if sorting explains the difference: rows that
    are no further apart than a few roundings are alike in any order."""
    if rows.a.shape[1] < 3 or len(np.unique(rows.a[0])) <= rows.a.shape[1] // 2:
        return False
    a, b = np.sort(rows.a, axis=1), np.sort(rows.b, axis=1)
    room = 4 * rows.unit * np.abs(a).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        left, size = np.linalg.norm(a - b), np.linalg.norm(rows.a - rows.b)
        return bool((np.abs(a - b) <= room).all() and left <= size / _EXPLAINED)


def _orders(rows: Sample) -> Iterator[tuple[str, Values, Values, Values]]:
    """Names of axes that may have been exchanged; what one side would then hold, what it holds, and
    what the other side holds."""
    axes = free_axes(rows.record_a.axes, rows.record_a.shape)
    count, length = rows.a.shape
    if len(axes) != 2 or axes[0][1] * axes[1][1] != length:
        return
    (first, h), (second, d) = axes
    split = rows.a.reshape(count, h, d)
    yield f"{first} and {second}", split.transpose(0, 2, 1).reshape(count, length), rows.b, rows.a
    whole = _whole(rows)
    if whole is not None:
        a, b = whole
        count = len(a)
        for x, y in ((a, b), (b, a)):
            yield (
                f"{first} and positions",
                x.reshape(count, h, d).transpose(1, 0, 2).reshape(count, length),
                y,
                x,
            )


def _whole(rows: Sample) -> tuple[Values, Values] | None:
    """All rows of the two records, where they are as many and not too many."""
    a, b = rows.record_a, rows.record_b
    if a.n_rows != b.n_rows or a.n_rows < 2 or a.n_rows * a.row_length > _ELEMENTS:
        return None
    dumps = rows.index("A").dump, rows.index("B").dump
    pairing = Pairing.of(a.dtype, b.dtype)
    return pairing.values(dumps[0].read_words(a), dumps[1].read_words(b))


def _sum(rows: Sample) -> str:
    """A's rows minus B's are a recorded tensor, or a sum of some: a residual was left out."""
    rest = rows.a - rows.b
    if not np.isfinite(rest).all():
        return ""
    size = np.linalg.norm(rest)
    candidates = dict(_candidates(rows))
    named: list[str] = []
    sign = "B plus"
    while candidates and len(named) < _TERMS:
        name, term = min(candidates.items(), key=lambda item: np.linalg.norm(rest - item[1]))
        if not named:
            opposite = min(candidates.items(), key=lambda item: np.linalg.norm(rest + item[1]))
            if np.linalg.norm(rest + opposite[1]) < np.linalg.norm(rest - term):
                rest, sign, (name, term) = -rest, "B minus", opposite
        rest = rest - term
        named.append(name)
        del candidates[name]
        if np.linalg.norm(rest) <= size / _EXPLAINED:
            left = np.linalg.norm(rest) / size
            return (
                f"A's {rows.record_a.tap} is that of {sign} {' plus '.join(named)} (residual "
                f"{left:.1g} of the difference): one of them was taken before an addition"
            )
    return ""


def _candidates(rows: Sample) -> Iterator[tuple[str, Values]]:
    """A's other taps of the same width in the same step, at the same rows."""
    index, entries = rows.index("A"), rows.entries("A")
    wanted = [(int(index.sequence[e]), int(index.position[e])) for e in entries]
    mine = rows.record_a
    alike = index.records.by_kind(
        lambda kind: (
            kind.row_length == mine.row_length
            and kind.tap != mine.tap
            and kind.kept == "full"
            and not is_keyed(kind)
        )
    )
    for number in np.flatnonzero(alike & (index.records.step == mine.step)).tolist():
        record = index.records[number]
        own = index.entries(number)
        there = {
            (int(index.sequence[e]), int(index.position[e])): e for e in range(own.start, own.stop)
        }
        if all(key in there for key in wanted):
            at = np.array([there[key] for key in wanted], np.int64)
            words = read_entries(index, at)
            values, _ = Pairing.of(record.dtype, record.dtype).values(words, words)
            if np.isfinite(values).all():
                yield record.tap, values


def _normed(rows: Sample) -> str:
    """One side is the other divided by its root mean square, times a weight."""
    if len(rows.a) < 2:
        return ""
    for side, normed, plain in (("B", rows.b, rows.a), ("A", rows.a, rows.b)):
        root = np.sqrt((plain**2).mean(axis=1, keepdims=True))
        with np.errstate(invalid="ignore", divide="ignore"):
            unit = plain / root
            weight = (normed * unit).sum(axis=0) / (unit**2).sum(axis=0)
            rest = np.linalg.norm(normed - unit * weight) / np.linalg.norm(normed - plain)
        if rest <= 1.0 / _EXPLAINED:
            other = "A" if side == "B" else "B"
            return (
                f"{side}'s {rows.record_a.tap} is {other}'s, normalised and weighted (residual "
                f"{rest:.1g} of the difference): one of them was taken after the norm"
            )
    return ""
