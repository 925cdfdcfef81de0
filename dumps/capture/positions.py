"""Which (sequence, position) each row of a step is, and how often it was computed before."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from dataclasses import dataclass, field

import numpy as np

from verify.errors import ArgumentError

PADDING = -1


@dataclass(frozen=True, slots=True)
class RowNames:
    """Identity of rows: sequence id (None for padding), position, visit; one entry a row."""

    sequence: np.ndarray
    position: np.ndarray
    visit: np.ndarray

    def __len__(self) -> int:
        return len(self.position)


@dataclass(slots=True)
class KeyAxis:
    """What the key axis of a step counts: the columns of all steps since the cache was empty.

    ``positions`` [b, columns] int64, ``PADDING`` where a column is padding. ``generation`` changes
    when the columns of earlier steps are no longer a prefix of these.
    """

    positions: np.ndarray
    generation: int

    def columns(self, length: int) -> tuple[int, int]:
        """Columns [start, stop) that a key tensor of ``length`` slots holds, from its slot 0.

        A growing or sliding cache holds the last columns; a preallocated one holds all of them in
        front, and its remaining slots are not filled yet.
        """
        total = self.positions.shape[1]
        return max(0, total - length), total


@dataclass(slots=True)
class Step:
    """One forward pass: ``positions`` [b, t] int64 (``PADDING`` where padded), one sequence id a
    batch row, and the columns of t whose logits are computed."""

    index: int
    sequences: list[str]
    positions: np.ndarray
    visits: np.ndarray
    keys: KeyAxis
    kept: np.ndarray | None = None
    _names: dict[bytes, RowNames] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return int(self.positions.shape[0])

    @property
    def tokens(self) -> int:
        return int(self.positions.shape[1])

    def row_names(self, columns: np.ndarray | None = None) -> RowNames:
        """Names of the rows (b, column), b-major; of all columns when None is given."""
        chosen = np.arange(self.tokens) if columns is None else np.asarray(columns, np.int64)
        key = chosen.tobytes()
        if key not in self._names:
            self._names[key] = self._name(chosen)
        return self._names[key]

    def _name(self, columns: np.ndarray) -> RowNames:
        position = self.positions[:, columns].reshape(-1)
        sequence = np.repeat(np.array(self.sequences, dtype=object), len(columns))
        sequence[position == PADDING] = None
        return RowNames(sequence, position, self.visits[:, columns].reshape(-1))


@dataclass(slots=True)
class FlatStep(Step):
    """A forward pass over a flattened batch: rows of several sequences one after another, as serving
    engines compute them. ``positions`` [1, n]; ``row_sequences`` [n] says whose row each is, None
    for padding."""

    row_sequences: np.ndarray = field(default_factory=lambda: np.empty(0, object))

    def _name(self, columns: np.ndarray) -> RowNames:
        position, visit = self.positions[0, columns], self.visits[0, columns]
        return RowNames(self.row_sequences[columns], position, visit)


class PositionTracker:
    """Counts visits and keeps the key axis over the steps of a run."""

    def __init__(self) -> None:
        self._visits: dict[str, np.ndarray] = {}
        self._keys: KeyAxis | None = None
        self._steps = 0

    def next_positions(self, batch: int, tokens: int) -> np.ndarray:
        """Positions [batch, tokens] that continue the last step; from 0 when it was another batch."""
        last = self._keys.positions if self._keys is not None else np.empty((0, 0), np.int64)
        start = np.zeros((batch, 1), np.int64)
        if last.shape[0] == batch and last.shape[1]:
            start = last.max(axis=1, keepdims=True) + 1
        return start + np.arange(tokens)

    def begin(
        self,
        positions: np.ndarray,
        sequences: Listing[str],
        *,
        cached: int | None = None,
        kept: np.ndarray | None = None,
    ) -> Step:
        """Open a step. ``cached`` is the number of key columns that its cache holds already; None
        when nobody knows, and then the earlier columns of the same batch are assumed to be there.

        Raises:
            ArgumentError: positions and sequences do not fit each other.
        """
        if positions.ndim != 2 or len(sequences) != positions.shape[0]:
            raise ArgumentError(
                "a step needs positions [b, t] and one sequence id a batch row",
                found=f"positions of shape {positions.shape}, {len(sequences)} sequence ids",
            )
        if len(set(sequences)) != len(sequences):
            raise ArgumentError("two rows of a step have the same sequence id", found=sequences)
        step = Step(
            index=self._steps,
            sequences=list(sequences),
            positions=positions.astype(np.int64, copy=False),
            visits=self._count(positions, sequences),
            keys=self._extend(positions, cached),
            kept=kept,
        )
        self._steps += 1
        return step

    def begin_flat(
        self,
        positions: np.ndarray,
        sequences: Listing[str | None],
        *,
        kept: np.ndarray | None = None,
    ) -> FlatStep:
        """Open a step over a flattened batch: ``positions`` [n], ``PADDING`` where padded, and whose
        row each is. Its key axis is not known.

        Raises:
            ArgumentError: positions and sequences do not fit each other.
        """
        owner = np.array(list(sequences), dtype=object)
        if owner.shape != positions.shape:
            raise ArgumentError(
                "a flattened batch needs a position and a sequence id a row",
                found=f"positions of shape {positions.shape}, {len(owner)} sequence ids",
            )
        positions = positions.astype(np.int64)
        padding = np.array([name is None for name in owner], bool) | (positions == PADDING)
        positions[padding], owner[padding] = PADDING, None
        visits = np.zeros(len(positions), np.int64)
        numbers: dict[str | None, int] = {}
        whose = np.array([numbers.setdefault(name, len(numbers)) for name in owner], np.int64)
        for name, number in numbers.items():
            if name is not None:
                at = np.flatnonzero(whose == number)
                visits[at] = self._count(positions[None, at], [name])[0]
        step = FlatStep(
            index=self._steps,
            sequences=[""],
            positions=positions[None],
            visits=visits[None],
            keys=KeyAxis(np.empty((1, 0), np.int64), self._steps),
            kept=kept,
            row_sequences=owner,
        )
        self._steps += 1
        return step

    def _count(self, positions: np.ndarray, sequences: Listing[str]) -> np.ndarray:
        visits = np.zeros(positions.shape, np.int64)
        for row, name in enumerate(sequences):
            real = positions[row] != PADDING
            at = positions[row][real]
            if len(np.unique(at)) < len(at):
                raise ArgumentError(
                    "a step computes a position of a sequence twice",
                    where=name,
                    found=at.tolist(),
                    allowed="different positions, or -1 for padding",
                )
            counts = self._visits.get(name, np.zeros(0, np.int64))
            short = (int(at.max()) + 1 if at.size else 0) - len(counts)
            if short > 0:
                counts = np.concatenate([counts, np.zeros(short, np.int64)])
            visits[row][real] = counts[at]
            counts[at] += 1
            self._visits[name] = counts
        return visits

    def _extend(self, positions: np.ndarray, cached: int | None) -> KeyAxis:
        old = self._keys
        batch = positions.shape[0]
        if old is None:
            old = KeyAxis(np.empty((batch, 0), np.int64), 0)
        if old.positions.shape[0] != batch:
            old = KeyAxis(np.empty((batch, 0), np.int64), old.generation + 1)
        held = old.positions.shape[1] if cached is None else cached
        prefix = old.positions[:, :held]
        changed = held < old.positions.shape[1]
        if prefix.shape[1] < held:
            # The cache was filled before the capture began: nobody told which positions it holds.
            prefix, changed = np.tile(np.arange(held), (batch, 1)), True
        columns = np.concatenate([prefix, positions], axis=1).astype(np.int64)
        self._keys = KeyAxis(columns, old.generation + changed)
        return self._keys
