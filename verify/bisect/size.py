"""Checks that rule rounding out by size: more than any order of summation could differ by.

They apply to operations whose inputs are equal in every bit, and say DEFECT or nothing: a
difference within such a bound could still be a defect.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.bisect import attention_bound
from verify.bisect.attention_bound import AttentionRow, difference_bound
from verify.bisect.local import Checker, LocalFinding, Op
from verify.bisect.moves import MOVES
from verify.bisect.result import Verdict
from verify.bounds import Bound
from verify.compare.align import Alignment
from verify.compare.elements import Pairing, floating_values
from verify.compare.pairs import read_entries
from verify.dumps.format.schema import Record
from verify.forensics.support import free_axes
from verify.formats import get_format

Values = NDArray[np.float64]

_ROWS = 64
"""Rows that are checked of an operation, those with the largest differences first."""

_KEY_ELEMENTS = 1 << 24
"""Keys of a longer context are not loaded: 128 MiB as float64."""


def attention(op: Op) -> LocalFinding | None:
    """The attention core against the bound of :mod:`verify.bisect.attention_bound`."""
    suffix = ".attn.out"
    record = op.a
    if not (op.inputs_equal and record.tap.endswith(suffix)) or record.dtype != op.b.dtype:
        return None
    if any(r.attributes.get("bias") or r.attributes.get("dropout") for r in (record, op.b)):
        return None  # scores with a bias have another size, and dropout is not a convex combination
    reader = _AttentionReader(op.compared.alignment, record.tap.removesuffix(suffix))
    worst: LocalFinding | None = None
    for at in op.largest(_ROWS):
        row = reader.row(int(at), record)
        found = None if row is None else _check_attention_row(op, int(at), row)
        if found is not None and (worst is None or found.used > worst.used):
            worst = found
    return worst


def moved(op: Op) -> LocalFinding | None:
    """An operation that only moves values has nothing to round."""
    a, b = op.a, op.b
    if not op.inputs_equal or a.dtype != b.dtype or not (a.ops and b.ops):
        return None
    if not MOVES.issuperset(a.ops) or not MOVES.issuperset(b.ops):
        return None
    at = int(op.largest(1)[0])
    x, y = _row_values(op, at)
    error = np.abs(y - x)
    element = int(np.nanargmax(error)) if np.isfinite(error).any() else 0
    return LocalFinding(
        tap=a.tap,
        verdict=Verdict.DEFECT,
        reason="the operations between the equal inputs and this tap only move values, so every "
        "bit had to stay",
        bound=Bound(0.0, "moving a value rounds nothing"),
        error=float(error[element]),
        row=at,
        element=element,
    )


SIZE_CHECKERS: list[Checker] = [attention, moved]


def _check_attention_row(op: Op, at: int, row: AttentionRow) -> LocalFinding | None:
    """The element of a row that breaks its bound most; None if none does, or if neither side is a
    convex combination of the values, so that this is no attention core as the bound knows it."""
    fmt = get_format(op.a.dtype)
    bound = difference_bound(row, fmt).reshape(-1)
    x, y = _row_values(op, at)
    if bound.shape != x.shape or not np.isfinite(bound).all():
        return None
    largest = np.tile(np.abs(row.v).max(axis=(0, 1)), len(row.q)) + bound / 2
    if not any((np.abs(side) <= largest).all() for side in (x, y)):
        return None
    with np.errstate(invalid="ignore"):
        error = np.abs(y - x)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    error = np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
    element = int(np.argmax(error / np.maximum(bound, fmt.min_subnormal)))
    if not error[element] > bound[element]:
        return None
    return LocalFinding(
        tap=op.a.tap,
        verdict=Verdict.DEFECT,
        reason="two correct attention cores cannot lie that far apart on equal queries, keys and "
        "values",
        bound=Bound(float(bound[element]), attention_bound.WHY),
        error=float(error[element]),
        row=at,
        element=element,
    )


def _row_values(op: Op, at: int) -> tuple[Values, Values]:
    x = op.compared.alignment
    words_a = read_entries(x.a, x.rows_a[at : at + 1])
    words_b = read_entries(x.b, x.rows_b[at : at + 1])
    a, b = Pairing.of(op.a.dtype, op.b.dtype).values(words_a, words_b)
    return a[0], b[0]


class _AttentionReader:
    """Queries, keys and values of rows of one attention core, as A recorded them."""

    def __init__(self, alignment: Alignment, core: str) -> None:
        self.alignment = alignment
        self.index = alignment.a
        self._entries = {name: self._find(f"{core}.attn.in.{name}") for name in "qkv"}
        self._keys: dict[int, tuple[NDArray[np.int64], Values, Values] | None] = {}

    def _find(self, tap: str) -> NDArray[np.int64]:
        wanted = self.index.is_of(lambda kind: kind.tap == tap)
        return np.flatnonzero(wanted[self.index.record])

    def row(self, at: int, record: Record) -> AttentionRow | None:
        """What the row read; None where it was not recorded in a known layout."""
        index, entry = self.index, int(self.alignment.rows_a[at])
        sequence, position = int(index.sequence[entry]), int(index.position[entry])
        q = self._entries["q"]
        mine = q[
            (index.sequence[q] == sequence)
            & (index.position[q] == position)
            & (index.visit[q] == index.visit[entry])
        ]
        keys = self._keys_of(sequence)
        if keys is None or len(mine) != 1:
            return None
        query = self._heads(mine)
        read = keys[0] <= position
        if query is None or not read.any():
            return None
        scale = record.attributes.get("scale")
        return AttentionRow(
            query[0],
            keys[1][read],
            keys[2][read],
            float(scale) if isinstance(scale, int | float) else query.shape[2] ** -0.5,
        )

    def _keys_of(self, sequence: int) -> tuple[NDArray[np.int64], Values, Values] | None:
        """All key rows of a sequence (every visit: more keys only widen the bound)."""
        if sequence not in self._keys:
            self._keys[sequence] = self._load_keys(sequence)
        return self._keys[sequence]

    def _load_keys(self, sequence: int) -> tuple[NDArray[np.int64], Values, Values] | None:
        k, v = (e[self.index.sequence[e] == sequence] for e in (self._entries[n] for n in "kv"))
        if not len(k) or not np.array_equal(self.index.position[k], self.index.position[v]):
            return None
        keys, values = self._heads(k), self._heads(v)
        if keys is None or values is None:
            return None
        return self.index.position[k], keys, values

    def _heads(self, entries: NDArray[np.int64]) -> Values | None:
        """Rows as [rows, heads, dim]; None unless their layout is heads by channels, words kept."""
        record = self.index.records[int(self.index.record[entries[0]])]
        axes = free_axes(record.axes, record.shape)
        full = self.index.dump.holder(record).kept == "full"
        if not full or [name for name, _ in axes] != ["h", "d"]:
            return None
        if len(entries) * record.row_length > _KEY_ELEMENTS:
            return None
        words = read_entries(self.index, entries)
        return floating_values(words, get_format(record.dtype)).reshape(
            len(entries), axes[0][1], axes[1][1]
        )
