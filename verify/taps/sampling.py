"""The taps of a run as a proposal sees them: names, shapes, order, and a few rows of each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
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
    """All taps of one run."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.taps: list[Tap] = []
        self._values: dict[tuple[str, str], Values] = {}
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
            if record.rank != first.rank or record.row_length != first.row_length:
                continue
            rows = self.dump.rows(record)
            for row, (sequence, position, visit) in enumerate(
                zip(rows.sequence, rows.position.tolist(), rows.visit.tolist(), strict=True)
            ):
                if sequence is not None:
                    tap.rows.setdefault((sequence, position, visit), (record, row))
        self.taps.append(tap)

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
    """The rows that most taps of both runs hold, at most :data:`ROWS`, in the order of positions;
    rows of one text only: none from the first token on that differs."""
    counts_a, counts_b = (Counter(k for t in s.taps for k in t.rows) for s in (a, b))
    parted = _first_other_tokens(a, b)
    shared = [
        key for key in counts_a if key in counts_b and 0 <= key[1] < parted.get(key[0], key[1] + 1)
    ]
    shared.sort(key=lambda k: (-min(counts_a[k], counts_b[k]), k[2], k[1], k[0]))
    chosen = shared[:ROWS]
    return sorted(chosen, key=lambda k: (k[0], k[1], k[2]))


def _first_other_tokens(a: Side, b: Side) -> dict[str, int]:
    """Sequence -> first position at which the runs were given another token."""
    taps = [next((t for t in side.taps if t.name == TOKENS_IN), None) for side in (a, b)]
    found: dict[str, int] = {}
    if taps[0] is None or taps[1] is None or taps[0].record.dtype != taps[1].record.dtype:
        return found
    keys = [key for key in taps[0].rows if key in taps[1].rows]
    for key, x, y in zip(keys, a.digests(taps[0], keys), b.digests(taps[1], keys), strict=True):
        if x != y:
            found[key[0]] = min(key[1], found.get(key[0], key[1]))
    return found
