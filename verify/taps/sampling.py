"""The taps of a run as a proposal sees them: names, shapes, order, and a few rows of each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record, Rows
from verify.dumps.format.tokens import TOKENS_IN
from verify.formats import decode, get_format

Values = NDArray[np.float32]
RowKey = tuple[str, int, int]
"""Sequence, position, visit."""

Codes = NDArray[np.int64]
NOBODY = -1
_POSITION, _VISIT = 31, 12  # bits of a code; a sequence has the 20 above them

_NONE: Codes = np.zeros(0, np.int64)

ROWS = 16
"""Rows of a tap that are looked at."""

MOST = 1 << 21
"""Elements of a tap that are looked at: fewer rows of a longer one."""

_PORT = re.compile(r"\.?(?:(?:attn|cache)\.)?(?:in|out)(?:\.\w+)?$")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")


@dataclass(slots=True)
class Tap:
    """One tap of a run; where it is recorded several times in a step, its first or last record."""

    name: str
    place: str
    """``first`` or ``last`` of several records in a step; empty where there is one."""
    template: str
    """The name with ``{n}`` for the number of its layer."""
    number: int | None
    record: Record
    """Its first record."""
    order: int
    """Place of the first record in the execution order."""
    kept: str
    rows: dict[RowKey, tuple[Record, int]] = field(default_factory=dict)
    """Where the rows that are looked at stand; :func:`shared_rows` chooses them."""
    held: list[tuple[Record, Codes]] = field(default_factory=list)
    """Records, and a code for each of their rows; :data:`NOBODY` for padding."""

    @property
    def row_length(self) -> int:
        return self.record.row_length

    @property
    def is_float(self) -> bool:
        return get_format(self.record.dtype).kind == "float"

    @property
    def is_keyed(self) -> bool:
        return "s" in self.record.axes.split()


def template_of(name: str) -> tuple[str, int | None]:
    """A tap name with its layer number replaced by ``{n}``: the first number of the module path,
    which is not the number of a port."""
    port = _PORT.search(name)
    end = port.start() if port else len(name)
    found = _NUMBER.search(name, 0, end)
    if found is None or found.end() > end:
        return name, None
    return f"{name[: found.start()]}{{n}}{name[found.end() :]}", int(found[0])


class Side:
    """All taps of one run.

    Args:
        sequences: name -> number, shared with the other run; it grows.
    """

    def __init__(self, dump: Dump, sequences: dict[str, int]) -> None:
        self.dump = dump
        self.sequences = sequences
        self.taps: list[Tap] = []
        by_tap: dict[str, dict[tuple[int, int], list[Record]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.order: dict[tuple[int, int], int] = {}
        for place, record in enumerate(dump.records()):
            self.order[record.rank, record.seq] = place
            by_tap[record.tap][record.rank, record.step].append(record)
        for name, steps in by_tap.items():
            several = any(len(records) > 1 for records in steps.values())
            for which in ("first", "last") if several else ("",):
                self._add(name, which, [r[-1 if which == "last" else 0] for r in steps.values()])

    def _add(self, name: str, place: str, records: list[Record]) -> None:
        first = records[0]
        template, number = template_of(name)
        tap = Tap(
            name=name,
            place=place,
            template=template,
            number=number,
            record=first,
            order=self.order[first.rank, first.seq],
            kept=self.dump.holder(first).kept,
        )
        for record in records:
            if record.rank == first.rank and record.row_length == first.row_length:
                tap.held.append((record, self._codes(self.dump.rows(record))))
        self.taps.append(tap)

    def _codes(self, rows: Rows) -> Codes:
        """One integer a row, the same for the same row of the other run."""
        codes = np.array([self._sequence(name) for name in rows.sequence], np.int64)
        known = (codes >= 0) & (rows.position >= 0) & (rows.visit < 1 << _VISIT)
        packed = (codes << (_POSITION + _VISIT)) | (rows.position << _VISIT) | rows.visit
        return np.where(known, packed, NOBODY)

    def _sequence(self, name: str | None) -> int:
        return NOBODY if name is None else self.sequences.setdefault(name, len(self.sequences))

    def counts(self) -> tuple[Codes, NDArray[np.int64]]:
        """The rows of all taps, and how many taps hold each."""
        held = [np.unique(np.concatenate([c for _, c in tap.held])) for tap in self.taps]
        codes, counts = np.unique(np.concatenate([*held, _NONE]), return_counts=True)
        return codes[codes != NOBODY], counts[codes != NOBODY]

    def look_at(self, codes: Codes) -> None:
        """Find these rows of every tap; the first of several in a tap counts."""
        for tap in self.taps:
            for record, held in tap.held:
                for row in np.flatnonzero(np.isin(held, codes)).tolist():
                    tap.rows.setdefault(self.key(int(held[row])), (record, row))

    def key(self, code: int) -> RowKey:
        """Sequence, position and visit of a code."""
        names = list(self.sequences)
        position = (code >> _VISIT) & ((1 << _POSITION) - 1)
        return names[code >> (_POSITION + _VISIT)], position, code & ((1 << _VISIT) - 1)

    def values(self, tap: Tap, keys: Iterable[RowKey]) -> Values:
        """Rows of a tap that kept its words, float32 [rows, elements]; exact up to 32-bit formats."""
        places = [tap.rows[key] for key in keys]
        found = np.empty((len(places), tap.row_length), np.float32)
        at = 0
        while at < len(places):  # neighbours in one read
            record, first = places[at]
            stop = at + 1
            while stop < len(places) and places[stop] == (record, first + stop - at):
                stop += 1
            words = self.dump.read_words(record, first, first + stop - at)
            found[at:stop] = decode(words, record.dtype)
            at = stop
        return found

    def digests(self, tap: Tap, keys: Iterable[RowKey]) -> list[int]:
        return [int(self._rows(tap, key).digest[tap.rows[key][1]]) for key in keys]

    def sketches(self, tap: Tap, keys: Iterable[RowKey]) -> NDArray[np.float64] | None:
        """Sketches of rows, float64 [rows, buckets]; None where a run kept none."""
        found = []
        for key in keys:
            sketch = self._rows(tap, key).sketch
            if sketch is None:
                return None
            found.append(np.asarray(sketch[tap.rows[key][1]], np.float64))
        return np.stack(found) if found else None

    def _rows(self, tap: Tap, key: RowKey) -> Rows:
        return self.dump.rows(tap.rows[key][0])


def shared_rows(a: Side, b: Side) -> list[RowKey]:
    """Choose the rows that most taps of both runs hold, at most :data:`ROWS`, and find them in every
    tap; rows of one text only: none from the first token on that differs."""
    (codes_a, counts_a), (codes_b, counts_b) = a.counts(), b.counts()
    codes, at_a, at_b = np.intersect1d(codes_a, codes_b, return_indices=True)
    counts = np.minimum(counts_a[at_a], counts_b[at_b])
    alike = _of_one_text(a, b, codes)
    codes, counts = codes[alike], counts[alike]
    visits = codes & ((1 << _VISIT) - 1)
    chosen = np.sort(codes[np.lexsort((codes, visits, -counts))[:ROWS]])
    for side in (a, b):
        side.look_at(chosen)
    return [a.key(code) for code in chosen.tolist()]


def _of_one_text(a: Side, b: Side, codes: Codes) -> NDArray[np.bool_]:
    """For each row whether it stands before the first token of its sequence that differs."""
    first = np.full(len(a.sequences) + 1, 1 << _POSITION, np.int64)
    (tokens_a, ids_a), (tokens_b, ids_b) = (_tokens(side) for side in (a, b))
    both, at_a, at_b = np.intersect1d(tokens_a, tokens_b, return_indices=True)
    other = both[ids_a[at_a] != ids_b[at_b]]
    np.minimum.at(first, other >> (_POSITION + _VISIT), _positions(other))
    return np.asarray(_positions(codes) < first[codes >> (_POSITION + _VISIT)])


def _tokens(side: Side) -> tuple[Codes, NDArray[np.uint64]]:
    """Rows of the ids that a run was given, and their digests."""
    held = [pair for tap in side.taps if tap.name == TOKENS_IN for pair in tap.held]
    codes = np.concatenate([*(codes for _, codes in held), _NONE])
    digests = [side.dump.rows(record).digest for record, _ in held]
    found, first = np.unique(codes, return_index=True)
    ids = np.concatenate([*digests, np.zeros(0, np.uint64)])[first]
    return found[found != NOBODY], ids[found != NOBODY]


def _positions(codes: Codes) -> Codes:
    return np.asarray((codes >> _VISIT) & ((1 << _POSITION) - 1))
