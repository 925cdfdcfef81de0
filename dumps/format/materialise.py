"""Whole tensors out of a dump: from row matrices back to shapes, key rows of earlier steps included.

All in raw words; turning words into tensors of a framework is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record
from verify.dumps.format.tokens import TOKENS_IN
from verify.errors import ArgumentError
from verify.formats import word_dtype

PADDING = -1

Words = NDArray[Any]


def row_order(axes: str) -> tuple[list[int], int]:
    """Axes in the order of the row matrix, and how many of them count rows."""
    names = axes.split()
    rows = [names.index(axis) for axis in ("b", "t", "s") if axis in names]
    return rows + [i for i in range(len(names)) if i not in rows], len(rows)


def from_row_matrix(words: Words, axes: str, shape: Sequence[int]) -> Words:
    """The tensor of ``shape`` whose row matrix is ``words`` [rows, row_length].

    Raises:
        ArgumentError: another number of elements.
    """
    if words.size != math.prod(shape):
        raise ArgumentError(
            "a row matrix does not fill its tensor",
            where="words",
            found=f"shape {words.shape}",
            allowed=f"{math.prod(shape)} elements, for {list(shape)} as {axes!r}",
        )
    order, _ = row_order(axes)
    return words.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


@dataclass(frozen=True, slots=True)
class StepKeys:
    """The columns that the key axis of a step can hold: position of each, [b, columns] int64
    (``PADDING`` where a column is padding), and the sequence of each batch row."""

    sequences: list[str]
    positions: NDArray[np.int64]

    def columns(self, length: int) -> tuple[int, int]:
        """Columns [start, stop) that a key tensor of ``length`` slots holds, from its slot 0: a
        growing or sliding cache holds the last ones; a preallocated one all, in front."""
        total = self.positions.shape[1]
        return max(0, total - length), total

    def slots(self, length: int) -> dict[tuple[str, int], tuple[int, int]]:
        """(sequence, position) -> (batch row, slot) of all real positions held."""
        start, stop = self.columns(length)
        held = self.positions[:, start:stop]
        return {
            (self.sequences[row], int(held[row, slot])): (int(row), int(slot))
            for row, slot in np.argwhere(held != PADDING)
        }


def step_keys(dump: Dump, rank: int = 0) -> dict[int, StepKeys]:
    """Key columns of every step, from the positions of the tokens that it was given.

    A step in which a sequence goes back to a position that it had begins with an empty cache.

    Raises:
        ArgumentError: the dump lacks the tap ``tokens.in``.
    """
    found: dict[int, StepKeys] = {}
    before: NDArray[np.int64] | None = None
    for record in dump.records(rank):
        if record.tap != TOKENS_IN:
            continue
        batch, tokens = record.shape
        rows = dump.rows(record)
        positions = np.where(
            np.array([name is None for name in rows.sequence], bool), PADDING, rows.position
        ).reshape(batch, tokens)
        fresh = before is None or before.shape[0] != batch or _goes_back(before, positions)
        held = np.empty((batch, 0), np.int64) if fresh or before is None else before
        before = np.concatenate([held, positions], axis=1).astype(np.int64)
        last = found.get(record.step - 1)
        names = _row_names(rows.sequence.reshape(batch, tokens), last.sequences if last else [])
        found[record.step] = StepKeys(names, before)
    if not found:
        raise ArgumentError(
            "the dump does not say which tokens its steps were given",
            where=dump.path,
            allowed=f"a record of {TOKENS_IN} in every step",
            hint="capture again with --taps default",
        )
    return found


def _goes_back(before: NDArray[np.int64], positions: NDArray[np.int64]) -> bool:
    """Whether any row has a real position again that is not behind all of its earlier ones."""
    first = np.where(positions == PADDING, np.iinfo(np.int64).max, positions).min(axis=1)
    return bool((first <= before.max(axis=1, initial=PADDING)).any())


def _row_names(sequences: NDArray[Any], before: list[str]) -> list[str]:
    """The sequence of each batch row; rows of padding alone keep theirs."""
    names = []
    for row, entries in enumerate(sequences):
        real = [name for name in entries if name is not None]
        names.append(real[0] if real else (before[row] if row < len(before) else ""))
    return names


@dataclass(slots=True)
class Materialiser:
    """Whole tensors of one rank of a dump, in any order of records."""

    dump: Dump
    rank: int = 0
    _keys: dict[int, StepKeys] = field(default_factory=dict)
    _history: dict[tuple[str, int], list[Record]] = field(default_factory=dict)

    def tensor(self, record: Record) -> tuple[Words, NDArray[np.bool_]]:
        """All words of a record in its shape, and which of them the dump knows.

        Words of slots that the dump does not know (padding of the key axis, slots that were never
        filled) are zero.

        Raises:
            ArgumentError: the words were not kept.
            CorruptDumpError: they are not what was stored.
        """
        holder = self.dump.holder(record)
        whole = holder.n_rows * holder.row_length == math.prod(holder.shape)
        if "s" not in holder.axes.split() or (whole and not holder.carried):
            words = from_row_matrix(self.dump.read_words(holder), holder.axes, record.shape)
            return words, np.ones(words.shape, bool)
        matrix, known = self._key_rows(holder)
        full = np.broadcast_to(known[:, None], matrix.shape)
        return (
            from_row_matrix(matrix, holder.axes, holder.shape),
            from_row_matrix(np.ascontiguousarray(full), holder.axes, holder.shape),
        )

    def _key_rows(self, record: Record) -> tuple[Words, NDArray[np.bool_]]:
        """Row matrix [b * s, row_length] of a key record: for each slot the words recorded last."""
        sizes = dict(zip(record.axes.split(), record.shape, strict=True))
        batch, length = sizes["b"], sizes["s"]
        words = np.zeros((batch * length, record.row_length), word_dtype(record.dtype))
        known = np.zeros(batch * length, bool)
        slots = self._step_keys(record.step).slots(length)
        for earlier in self._records(record.tap, record.occurrence):
            if earlier.seq > record.seq or not earlier.n_rows:
                continue
            rows = self.dump.rows(earlier)
            names = zip(rows.sequence, rows.position.tolist(), strict=True)
            at = [slots.get(name) for name in names]
            some = [i for i, slot in enumerate(at) if slot is not None]
            if some:
                target = [slot[0] * length + slot[1] for slot in at if slot is not None]
                words[target] = self.dump.read_words(earlier)[some]
                known[target] = True
        return words, known

    def _step_keys(self, step: int) -> StepKeys:
        if not self._keys:
            self._keys = step_keys(self.dump, self.rank)
        return self._keys[step]

    def _records(self, tap: str, occurrence: int) -> list[Record]:
        if not self._history:
            for record in self.dump.records(self.rank):
                if "s" in record.axes.split() and record.same_as is None:
                    self._history.setdefault(record.key, []).append(record)
        return self._history.get((tap, occurrence), [])
