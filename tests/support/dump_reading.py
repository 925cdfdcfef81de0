"""Short ways to ask a dump in tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.formats import decode


def record_of(dump: Dump, tap: str, *, step: int = 0, occurrence: int = 0) -> Record:
    """The record of ``tap``, or a failure that lists the taps that there are."""
    found = [r for r in dump.records() if (r.tap, r.step, r.occurrence) == (tap, step, occurrence)]
    assert len(found) == 1, f"{tap} step {step}: {sorted({r.tap for r in dump.records()})}"
    return found[0]


def values_of(dump: Dump, record: Record) -> np.ndarray:
    """Row matrix of a record, decoded."""
    return decode(dump.read_words(record), record.dtype)


def input_names(dump: Dump, record: Record) -> set[str]:
    """Inputs in words: tap names of records, ``weight <name>``, ``value <name>``, ``unknown``."""
    taps = {r.seq: r.tap for r in dump.records()}
    return {
        taps[i.seq] if i.kind == "record" else f"{i.kind} {i.name or ''}".strip()
        for i in record.inputs
    }


def row_table(dump: Dump) -> dict[tuple[Any, ...], tuple[int, bytes]]:
    """(tap, occurrence, sequence, position, visit) -> (digest, words) of all rows but padding."""
    table: dict[tuple[Any, ...], tuple[int, bytes]] = {}
    for record in dump.records():
        rows, words = dump.rows(record), dump.read_words(record)
        names = zip(rows.sequence, rows.position, rows.visit, strict=True)
        for index, (sequence, position, visit) in enumerate(names):
            if sequence is None:
                continue
            key = (record.tap, record.occurrence, sequence, int(position), int(visit))
            assert key not in table, f"two rows are called {key}"
            table[key] = (int(rows.digest[index]), words[index].tobytes())
    return table
