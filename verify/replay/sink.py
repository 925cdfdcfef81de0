"""Where every tapped tensor of a forced forward arrives: compared first, then overwritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.dumps.capture.identity import Call, Identity
from verify.dumps.capture.positions import Step
from verify.dumps.capture.storages import Ancestry, StorageTable
from verify.dumps.capture.tensor_words import dtype_name, row_matrix
from verify.dumps.digests import row_digests
from verify.dumps.format.materialise import from_row_matrix
from verify.dumps.format.schema import Record
from verify.errors import NotComparableError
from verify.replay.held_keys import HeldKeys
from verify.replay.parts import Parts, add_rows
from verify.replay.values import Values, Wanted
from verify.replay.words import overlaps_itself, overwrite, to_tensor

Words = NDArray[Any]

GIVEN = ("tokens.in", "positions.in", "tokens.out")
"""Told to a step, or read off at its end: never overwritten."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What arrived at a tap, before anything is overwritten: for those who look closer.

    ``rows``: rows of the record that the other run has; ``wanted`` and ``computed``: their words;
    ``tensor_rows``: where these rows stand in the row matrix of the tensor.
    """

    number: int
    record: Record
    rows: NDArray[np.int64]
    tensor_rows: NDArray[np.int64]
    wanted: Words
    computed: Words


Watcher = Callable[[Taken, dict[str, Any] | None], None]


@dataclass(slots=True)
class Sink:
    """Takes the place of a recorder at the hook points.

    Args:
        values: which rows are wanted.
        force: the taps whose tensors are overwritten.
        watch: told about rows that came out otherwise than wanted, before they are overwritten.
    """

    values: Values
    force: Callable[[str], bool] = lambda tap: True
    watch: Watcher | None = None
    measured: Callable[[str], bool] = lambda tap: True
    parts: dict[str, Parts] = field(default_factory=dict)
    proofs: dict[str, int] = field(default_factory=dict)
    """Tap -> rows that its readers saw as wanted, checked by digest after overwriting."""
    asked: dict[str, int] = field(default_factory=dict)
    """Tap -> rows that were to be overwritten."""
    changed: dict[str, int] = field(default_factory=dict)
    """Tap -> rows that overwriting changed."""
    notes: list[str] = field(default_factory=list)
    provenance: Identity = field(default_factory=lambda: Identity(StorageTable()))
    _step: Step | None = None
    _held: HeldKeys | None = None
    _occurrences: Counter[str] = field(default_factory=Counter)

    def begin(self, step: Step) -> None:
        self._step = step
        self._occurrences.clear()

    def record(
        self,
        tap: str,
        tensor: torch.Tensor,
        *,
        axes: str | None = None,
        columns: Any = None,
        call: Call | None = None,
        attributes: dict[str, Any] | None = None,
        extra: tuple[Ancestry, ...] = (),
    ) -> int:
        """Compare with what is wanted here, then overwrite. Returns -1: nothing is recorded."""
        assert self._step is not None
        occurrence = self._occurrences[tap]
        self._occurrences[tap] += 1
        number = self.values.number(self._step.index, tap, occurrence)
        if number is None:
            return -1
        record = self.values.record(number)
        _check_shape(record, tensor)
        if record.kept == "same":
            return -1  # the same memory was dealt with where it was recorded
        forced, measured = self.force(tap) and tap not in GIVEN, self.measured(tap)
        if forced or measured:
            wanted = self.values.wanted(number)
            if wanted is not None:
                self._take(number, record, tensor, wanted, forced, measured, attributes)
            if forced and "s" in record.axes.split():
                self._hold_keys(number, record, tensor, wanted)
        return -1

    def _take(
        self,
        number: int,
        record: Record,
        tensor: torch.Tensor,
        wanted: Wanted,
        forced: bool,
        measured: bool,
        attributes: dict[str, Any] | None,
    ) -> None:
        assert self._step is not None
        matrix = row_matrix(tensor, record.axes)
        at = _tensor_rows(self.values, number, record, tensor, self._step)[wanted.rows]
        good = at >= 0
        wanted = Wanted(wanted.rows[good], wanted.words[good], wanted.entries[good], wanted.exact)
        at = at[good]
        computed = matrix[at]
        differs = (computed != wanted.words).any(axis=1)
        if measured:
            self._measure(number, record, wanted, computed)
        if self.watch is not None and differs.any():
            taken = Taken(
                number,
                record,
                wanted.rows[differs],
                at[differs],
                wanted.words[differs],
                computed[differs],
            )
            self.watch(taken, attributes)
        if forced:
            self._overwrite(record, tensor, matrix, at, wanted, differs)

    def _hold_keys(
        self, number: int, record: Record, tensor: torch.Tensor, wanted: Wanted | None
    ) -> None:
        """Give the reader the keys of earlier steps as well, if it has others."""
        assert self._step is not None
        if self._held is None:
            self._held = HeldKeys(self.values)
        length = tensor.shape[record.axes.split().index("s")]
        at, words = self._held.carried(number, record, wanted, length, self._step)
        if words is None:
            return
        matrix = row_matrix(tensor, record.axes)
        if np.array_equal(matrix[at], words):
            return
        if overlaps_itself(tensor):
            self.notes.append(f"{record.tap}: an expanded tensor cannot be overwritten")
            return
        matrix[at] = words
        whole = from_row_matrix(matrix, record.axes, list(tensor.shape))
        overwrite(tensor, to_tensor(whole, tensor.dtype).to(tensor.device))

    def _measure(self, number: int, record: Record, wanted: Wanted, computed: Words) -> None:
        parts = self.parts.get(record.tap)
        if parts is None:
            parts = self.parts[record.tap] = Parts(record.tap, record.seq)
        parts.exact &= wanted.exact
        index = self.values.schedule
        start = index.entries(number).start
        names = [
            (index.sequences[int(index.sequence[start + r])], int(index.position[start + r]))
            for r in wanted.rows
        ]
        own = self.values.own(number, wanted.rows)
        add_rows(parts, names, record.step, (wanted.words, computed, own), record.dtype)

    def _overwrite(
        self,
        record: Record,
        tensor: torch.Tensor,
        matrix: Words,
        at: NDArray[np.int64],
        wanted: Wanted,
        differs: NDArray[np.bool_],
    ) -> None:
        tap = record.tap
        self.asked[tap] = self.asked.get(tap, 0) + len(at)
        if differs.any():
            if overlaps_itself(tensor):
                self.notes.append(f"{tap}: an expanded tensor cannot be overwritten")
                return
            matrix[at] = wanted.words
            whole = from_row_matrix(matrix, record.axes, list(tensor.shape))
            overwrite(tensor, to_tensor(whole, tensor.dtype).to(tensor.device))
        seen = row_digests(row_matrix(tensor, record.axes)[at], record.dtype)
        good = seen == row_digests(wanted.words, record.dtype)
        self.proofs[tap] = self.proofs.get(tap, 0) + int(good.sum())
        self.changed[tap] = self.changed.get(tap, 0) + int(differs.sum())


def _check_shape(record: Record, tensor: torch.Tensor) -> None:
    found, dtype = list(tensor.shape), dtype_name(tensor, record.tap)
    if record.tap.endswith(".mask"):
        return
    if found != record.shape or dtype != record.dtype:
        raise NotComparableError(
            "the model at hand does not compute what the dump recorded",
            where=f"{record.tap}, step {record.step}",
            found=f"{dtype} {found}",
            allowed=f"{record.dtype} {record.shape}, as recorded",
            hint="give the model, dtype and settings of that run (its manifest names them)",
        )


def _tensor_rows(
    values: Values, number: int, record: Record, tensor: torch.Tensor, step: Step
) -> NDArray[np.int64]:
    """For each listed row of a record the row of the tensor's row matrix, -1 where it has none."""
    axes = record.axes.split()
    if "s" not in axes:
        return np.arange(record.n_rows, dtype=np.int64)
    length = tensor.shape[axes.index("s")]
    start, stop = step.keys.columns(length)
    held = step.keys.positions[:, start:stop]
    places = {
        (step.sequences[b], int(held[b, s])): int(b * length + s) for b, s in np.argwhere(held >= 0)
    }
    index = values.schedule
    entries = range(*values.schedule.entries(number).indices(len(index)))
    found = [
        places.get((index.sequences[int(index.sequence[e])], int(index.position[e])), -1)
        if index.sequence[e] >= 0
        else -1
        for e in entries
    ]
    return np.array(found, np.int64)
