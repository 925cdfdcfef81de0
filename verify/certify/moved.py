"""Operations that only move values: their words are those that they read."""

from __future__ import annotations

from verify.bisect.moves import MOVES
from verify.certify.inputs import common_places, record_inputs
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError

COPY = "aten.alias"
"""What stands for a copy where operations are told by another run."""


def tells_operations(dump: Dump) -> bool:
    """Whether a record without operations is a copy: only a trace says so, else they are not known."""
    return bool(dump.manifest.capture.get("edges", "trace") == "trace")


def only_moves(dump: Dump, record: Record) -> bool:
    """Whether it moves the rows of its inputs. A lookup moves rows of its table instead."""
    if not record.ops and not tells_operations(dump):
        return False
    return MOVES.issuperset(record.ops) and all(s.kind != "weight" for s in record.inputs)


def judge_moved(dump: Dump, record: Record) -> tuple[bool, str]:
    """Whether each row has the words of a row of the same place that it read, such as keys of earlier
    tokens with new ones behind them; and that in words. Padding has no place, and says nothing.

    Raises:
        ArgumentError: an input that was not recorded, or rows that do not go together.
    """
    sources = record_inputs(dump, record)
    words = dump.read_words(record)
    found = dump.rows(record).position < 0
    same = found.copy()
    for source in sources:
        if record.row_length != source.row_length:
            raise ArgumentError(
                "rows of another length than those that were read",
                where=record.tap, found=source.tap,
            )  # fmt: skip
        at, read = common_places(dump, record, source)
        found[at] = True
        same[at] |= (words[at] == dump.read_words(source)[read]).all(axis=1)
    names = " and ".join(source.tap for source in sources)
    if not found.all():
        raise ArgumentError("rows that no input has", where=record.tap, found=names)
    moved = bool(same.all())
    return moved, f"{'only moves' if moved else 'changes'} the values of {names}"
