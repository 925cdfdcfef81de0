"""Where differences come from: records that differ though all they were computed from is equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verify.bisect.marks import Limits, Marks, merged
from verify.compare.align import rows_by_pair
from verify.compare.index import PADDING, RowIndex
from verify.compare.run import RowComparison
from verify.dumps.format.input_lists import NOBODY
from verify.dumps.format.records import Records
from verify.dumps.format.schema import Input, Manifest, Record
from verify.dumps.format.tokens import TOKENS_IN
from verify.dumps.window import Window

Rows = NDArray[np.int64]

_CHUNK = 4096
"""Rows that are asked about together."""


@dataclass(slots=True)
class Place:
    """Rows of one tap at which something begins. ``rows`` count in the alignment."""

    tap: str
    rows: list[Rows] = field(default_factory=list)
    whole: bool = True
    """No row of any input is marked; else only none up to the position of the row."""
    sources: list[str] = field(default_factory=list)
    """What the first of the records was computed from, in words."""
    missing: list[str] = field(default_factory=list)
    """Inputs that were not recorded, or not by both runs."""

    @property
    def at(self) -> Rows:
        return np.concatenate(self.rows)


@dataclass(slots=True)
class Origins:
    """What the recorded edges say about all differing rows."""

    proven: list[Place]
    """All recorded inputs are equal, and all inputs were recorded."""
    open: list[Place]
    """First observed here: nothing that was seen before differs, but inputs are missing."""
    by_weights: list[Place]
    """Equal activations went in, and other weights."""
    unjudged: int
    """Differing rows whose inputs were not all recorded, behind an earlier difference."""
    inherited: int
    """Differing rows with a differing input."""


def find_origins(compared: RowComparison, causal: bool) -> Origins:
    """Judge every differing row by the inputs of its record in both runs.

    Args:
        causal: rows may be judged by the rows up to their position; else only where no row of any
            input differs.
    """
    differing = np.flatnonzero(compared.compared & (compared.measures.differing > 0))
    sides = _sides(compared, differing)
    return _Search(compared, sides, causal).run(differing)


def find_fronts(compared: RowComparison, marked: Rows) -> list[Place]:
    """Taps where a kind of difference begins: ``marked`` rows without a marked row before them in
    any input. ``marked`` counts in the alignment."""
    alignment = compared.alignment
    marks = (
        Marks(alignment.a, alignment.rows_a[marked]),
        Marks(alignment.b, alignment.rows_b[marked]),
    )
    places: dict[str, Place] = {}
    for a, b, rows in rows_by_pair(alignment, marked):
        limits = merged(marks[0].of_inputs(a), marks[1].of_inputs(b))
        entries = alignment.rows_a[rows]
        reached = marks[0].first_reached(limits, alignment.a.sequence[entries])
        begins = rows[alignment.a.position[entries] < reached]
        if begins.size:
            tap = alignment.a.records[a].tap
            places.setdefault(tap, Place(tap)).rows.append(begins)
    return list(places.values())


@dataclass(slots=True)
class _Side:
    index: RowIndex
    differing: Marks
    unknown: Marks
    manifest: Manifest


def _sides(compared: RowComparison, differing: Rows) -> tuple[_Side, _Side]:
    x = compared.alignment
    known = compared.compared | compared.apart
    return (
        _side(x.a, x.rows_a[differing], x.rows_a[known]),
        _side(x.b, x.rows_b[differing], x.rows_b[known]),
    )


def _side(index: RowIndex, differing: Rows, known: Rows) -> _Side:
    is_unknown = index.sequence != PADDING
    is_unknown[known] = False
    _ask_holders(index, is_unknown)
    unknown = Marks(index, np.flatnonzero(is_unknown))
    _add_left_out(index, unknown)
    return _Side(index, Marks(index, differing), unknown, index.dump.manifest)


def _add_left_out(index: RowIndex, unknown: Marks) -> None:
    """Rows that a window left out stand in no record, and nobody knows whether they differ."""
    rows = Window.of(index.dump.manifest.capture).rows
    first = None if rows is None else rows.first_missing
    if first is None:
        return
    left_out = dict.fromkeys(range(len(index.sequences)), first)
    for number in index.records.where(_lacks_rows).tolist():
        unknown.limits[number] = merged(unknown.limits[number], left_out)


def _lacks_rows(record: Record) -> bool:
    size = dict(zip(record.axes.split(), record.shape, strict=True))
    return "s" not in size and record.n_rows < size.get("b", 1) * size.get("t", 1)


def _ask_holders(index: RowIndex, is_unknown: NDArray[np.bool_]) -> None:
    """A record that repeats another one is known as well as that one."""
    same = np.flatnonzero(index.records.same_as != NOBODY)
    held = index.records.holders()[same]
    is_unknown[index.entries_of(same)] &= is_unknown[index.entries_of(held)]


class _Search:
    def __init__(self, compared: RowComparison, sides: tuple[_Side, _Side], causal: bool) -> None:
        self.alignment = compared.alignment
        self.a, self.b = sides
        self.causal = causal
        self.proven: dict[str, Place] = {}
        self.open: dict[str, Place] = {}
        self.by_weights: dict[str, Place] = {}
        self.unjudged = 0
        self.inherited = 0
        self.seen: Limits = {}
        self._apart = tuple(~(r.reads("record") | r.reads("weight")) for r in self._records)
        self._unknown = tuple(r.reads("unknown") | ~r.reads("value") for r in self._records)

    @property
    def _records(self) -> tuple[Records, Records]:
        return self.a.index.records, self.b.index.records

    def run(self, differing: Rows) -> Origins:
        index, rows_a = self.a.index, self.alignment.rows_a
        computed = index.is_of(lambda kind: kind.tap != TOKENS_IN)  # others were given
        differing = differing[computed[index.record[rows_a[differing]]]]
        for rows in self._chunks(differing):
            if self._tells_nothing(rows):
                self.unjudged += len(rows)
                continue
            for a, b, some in rows_by_pair(self.alignment, rows):
                self._judge(a, b, some)
        return Origins(
            list(self.proven.values()),
            list(self.open.values()),
            list(self.by_weights.values()),
            self.unjudged,
            self.inherited,
        )

    def _chunks(self, differing: Rows) -> Iterator[Rows]:
        """The rows in A's order, in blocks that end with a record."""
        x = self.alignment
        ordered = differing[np.argsort(x.rows_a[differing], kind="stable")]
        record = x.a.record[x.rows_a[ordered]]
        start = 0
        while start < len(ordered):
            last = record[min(start + _CHUNK, len(ordered)) - 1]
            stop = start + int(np.searchsorted(record[start:], last, side="right"))
            yield ordered[start:stop]
            start = stop

    def _tells_nothing(self, rows: Rows) -> bool:
        """Whether inputs of all these rows are unknown, none is recorded, and something differed
        before each: the rule in a lean capture, told here for many rows at once."""
        x = self.alignment
        a, b = x.a.record[x.rows_a[rows]], x.b.record[x.rows_b[rows]]
        if not (self._apart[0][a] & self._apart[1][b]).all():
            return False
        if not (self._unknown[0][a] | self._unknown[1][b]).all():
            return False
        sequence, position = x.a.sequence[x.rows_a[rows]], x.a.position[x.rows_a[rows]]
        return bool((position >= self.a.differing.first_reached(self.seen, sequence)).all())

    def _judge(self, a: int, b: int, rows: Rows) -> None:
        index = self.a.index
        record_a, record_b = index.records[a], self.b.index.records[b]
        entries = self.alignment.rows_a[rows]
        position, sequence = index.position[entries], index.sequence[entries]
        marked = merged(self.a.differing.of_inputs(a), self.b.differing.of_inputs(b))
        unknown = merged(self.a.unknown.of_inputs(a), self.b.unknown.of_inputs(b))
        missing = self._missing(record_a, record_b)
        local = position < self._reached(marked, sequence)
        known = (position < self._reached(unknown, sequence)) & (not missing)
        weights = self._other_weights(record_a, record_b)
        self.inherited += int((~local).sum())
        if weights:
            self._note(self.by_weights, a, rows[local], marked, missing=weights)
        else:
            self._note(self.proven, a, rows[local & known], merged(marked, unknown))
            first = position < self.a.differing.first_reached(self.seen, sequence)
            self._note(self.open, a, rows[local & ~known & first], marked, missing=missing)
            self.unjudged += int((local & ~known & ~first).sum())
        for code in np.unique(sequence):
            first_seen = int(position[sequence == code].min())
            self.seen = merged(self.seen, {int(code): first_seen})

    def _reached(self, limits: Limits, sequence: NDArray[np.int32]) -> NDArray[np.int64]:
        if limits and not self.causal:
            return np.full(len(sequence), -1)
        return self.a.differing.first_reached(limits, sequence)

    def _note(
        self,
        places: dict[str, Place],
        record: int,
        rows: Rows,
        limits: Limits,
        missing: list[str] | None = None,
    ) -> None:
        if not rows.size:
            return
        found = self.a.index.records[record]
        place = places.get(found.tap)
        if place is None:
            sources = [_spelled(s, self.a, found.rank) for s in found.inputs]
            place = places[found.tap] = Place(found.tap, sources=list(dict.fromkeys(sources)))
        place.rows.append(rows)
        place.whole &= not limits
        place.missing.extend(m for m in missing or () if m not in place.missing)

    def _missing(self, a: Record, b: Record) -> list[str]:
        """Inputs of either record that cannot be shown to be equal."""
        sides = (("A", a), ("B", b))
        missing = [f"{side}: no input was recorded" for side, r in sides if not r.inputs]
        values_a, values_b = (_values(record) for _, record in sides)
        missing += [
            f"value {name}: not the same in both runs"
            for name in values_a.keys() | values_b.keys()
            if values_a.get(name) != values_b.get(name)
        ]
        missing += [
            f"{side}: {source.name or 'something'} was not recorded"
            for side, record in sides
            for source in record.inputs
            if source.kind == "unknown"
        ]
        x, y = self.a.manifest.model.weights, self.b.manifest.model.weights
        missing += [
            f"weight {name}: no digest in both runs"
            for name in _weight_names(a, b)
            if name not in x or name not in y
        ]
        return missing

    def _other_weights(self, a: Record, b: Record) -> list[str]:
        x, y = self.a.manifest.model.weights, self.b.manifest.model.weights
        names = _weight_names(a, b)
        return [
            f"weight {name}" for name in names if name in x and name in y and x[name] != y[name]
        ]


def _values(record: Record) -> dict[str | None, list[str | None]]:
    """Name -> digests of the values from outside; tensors of one shape may share a name."""
    found: dict[str | None, list[str | None]] = {}
    for source in record.inputs:
        if source.kind == "value":
            found.setdefault(source.name, []).append(source.digest)
    return found


def _spelled(source: Input, side: _Side, rank: int) -> str:
    if source.kind == "record" and source.seq is not None:
        return side.index.dump.record(source.seq, rank).tap
    return f"{source.kind} {source.name}" if source.name else source.kind


def _weight_names(a: Record, b: Record) -> list[str]:
    return sorted({s.name or "" for r in (a, b) for s in r.inputs if s.kind == "weight"})
