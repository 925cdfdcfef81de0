"""Key rows of earlier steps, as the other run read them: they are forced at every later read.

A cache hands out its keys anew at each step: dequantised, scaled, gathered from pages. Overwriting
what it handed out once does not reach its own memory, so each read is overwritten in full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.pairs import read_entries
from verify.dumps.capture.positions import Step
from verify.dumps.format.schema import Record
from verify.replay.values import Values, Wanted, recast

Words = NDArray[Any]
Rows = NDArray[np.int64]


@dataclass(slots=True)
class _Tap:
    """Rows by (sequence, position): places in ``words``, a table for each sequence."""

    words: list[Words] = field(default_factory=list)
    places: dict[str, Rows] = field(default_factory=dict)
    next_record: int = 0

    def put(self, sequence: str, position: int, words: Words) -> None:
        table = self.places.get(sequence)
        if table is None or position >= len(table):
            longer = np.full(max(2 * position, 64) + 1, -1, np.int64)
            if table is not None:
                longer[: len(table)] = table
            table = self.places[sequence] = longer
        table[position] = len(self.words)
        self.words.append(words)


class HeldKeys:
    """What each key tap was last given, over the steps of one pass."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._taps: dict[tuple[str, int], _Tap] = {}
        self._again = _written_again(values)

    def carried(
        self, number: int, record: Record, wanted: Wanted | None, length: int, step: Step
    ) -> tuple[Rows, Words | None]:
        """Rows of the tensor's row matrix that are known, and the words that they have to hold.

        Args:
            number, record: the read, in the schedule.
            wanted: the rows that the other run recorded for this read; they are remembered.
            length: slots of the key axis.
        """
        tap = self._taps.setdefault((record.tap, record.occurrence), _Tap())
        if wanted is not None:
            self._write_again(tap, record, int(self._values.values.record[wanted.entries].max()))
            self._remember(tap, number, wanted)
        at, places = self._slots(tap, length, step)
        return at, np.stack([tap.words[i] for i in places.tolist()]) if len(at) else None

    def _remember(self, tap: _Tap, number: int, wanted: Wanted) -> None:
        index = self._values.schedule
        start = index.entries(number).start
        for row, words in zip(wanted.rows.tolist(), wanted.words, strict=True):
            code = int(index.sequence[start + row])
            if code >= 0:
                tap.put(index.sequences[code], int(index.position[start + row]), words)

    def _write_again(self, tap: _Tap, record: Record, last: int) -> None:
        """Rows that the other run wrote again up to its record ``last``, which the schedule may
        not list at all."""
        index = self._values.values
        entries = self._again.get(record.tap, [])
        for entry in entries:
            number = int(index.record[entry])
            if not tap.next_record <= number <= last:
                continue
            given = read_entries(index, np.array([entry]))
            words, _ = recast(given, index.records[number].dtype, record.dtype)
            sequence = index.sequences[int(index.sequence[entry])]
            tap.put(sequence, int(index.position[entry]), words[0])
        tap.next_record = last + 1

    def _slots(self, tap: _Tap, length: int, step: Step) -> tuple[Rows, Rows]:
        """(row of the row matrix, place in ``tap.words``) of every slot that is known."""
        start, stop = step.keys.columns(length)
        positions = step.keys.positions[:, start:stop]
        rows, places = [], []
        for b, held in enumerate(positions):
            table = tap.places.get(step.sequences[b] or "")
            if table is None:
                continue
            inside = (held >= 0) & (held < len(table))
            found = np.where(inside, table[np.where(inside, held, 0)], -1)
            slots = np.flatnonzero(found >= 0)
            rows.append(b * length + slots)
            places.append(found[slots])
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(rows), np.concatenate(places)


def _written_again(values: Values) -> dict[str, list[int]]:
    """Tap -> entries of the run ``values.values`` with other bits at a position that it had
    recorded before, in its order."""
    index = values.values
    found: dict[str, list[int]] = {}
    for entry in np.flatnonzero((index.visit > 0) & (index.sequence >= 0)).tolist():
        record = index.records[int(index.record[entry])]
        if "s" in record.axes.split() and index.dump.holder(record).kept == "full":
            found.setdefault(record.tap, []).append(entry)
    return found
