"""The numbers of recorded tensors, for people: which rows, statistics, the first values."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import msgspec
import numpy as np

from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record, Rows
from verify.dumps.summaries import STATISTICS, row_statistics
from verify.errors import UsageError
from verify.formats import decode, word_dtype

FIRST_VALUES = 8
_BLOCK = 4 << 20  # bytes of a tensor in memory at a time


class RowSpan(msgspec.Struct, kw_only=True):
    """Rows of one sequence at consecutive positions; ``sequence`` None is padding."""

    sequence: str | None
    first: int
    last: int
    visit: int


class TensorNumbers(msgspec.Struct, kw_only=True):
    """One record with its numbers."""

    seq: int
    rank: int
    step: int
    tap: str
    occurrence: int
    dtype: str
    shape: list[int]
    axes: str
    kept: str
    same_as: str | None
    """Tap and step of the record that holds the words of this one."""
    row_length: int
    rows: list[RowSpan]
    elements: int
    statistics: dict[str, float] | None
    """``max_abs``, ``sum``, ``sum_sq`` over finite elements, and counts; None if not kept."""
    first_values: list[float | int | complex]
    """Of the first row, in the order of its elements; empty without words."""
    first_words: list[str]
    """The same elements as hexadecimal words."""
    inputs: list[str]
    ops: list[str]


def select(
    dump: Dump, glob: str | None = None, step: int | None = None, rank: int | None = None
) -> list[Record]:
    """Records whose tap matches ``glob`` in ``step``; None matches everything.

    Raises:
        UsageError: nothing matches; the message names what there is.
    """
    records = dump.records(rank)
    named = [record for record in records if glob is None or fnmatchcase(record.tap, glob)]
    if not named:
        raise UsageError(
            "no tap of this dump matches",
            where=dump.path,
            found=glob,
            allowed=_some(sorted({record.tap for record in records})),
            hint="quote a pattern such as '*.mlp.out'; `verify inspect RUN` lists the taps",
        )
    found = [record for record in named if step is None or record.step == step]
    if not found:
        steps = sorted({record.step for record in named})
        raise UsageError(
            "there is no such step for the taps that match",
            where=dump.path,
            found=f"step {step}",
            allowed=_some([str(number) for number in steps]),
        )
    return found


def numbers(dump: Dump, record: Record) -> TensorNumbers:
    """The numbers of one record, read block by block.

    Raises:
        CorruptDumpError: the rows or the words are not what was stored.
    """
    holder = dump.holder(record)
    rows = dump.rows(record)
    first = _first_words(dump, holder)
    return TensorNumbers(
        seq=record.seq,
        rank=record.rank,
        step=record.step,
        tap=record.tap,
        occurrence=record.occurrence,
        dtype=record.dtype,
        shape=record.shape,
        axes=record.axes,
        kept=record.kept,
        same_as=None if holder is record else f"{holder.tap}, step {holder.step}",
        row_length=record.row_length,
        rows=list(_spans(rows)),
        elements=record.n_rows * record.row_length,
        statistics=_statistics(dump, holder, rows),
        first_values=decode(first, record.dtype).tolist(),
        first_words=[f"{word:0{2 * first.itemsize}x}" for word in first.tolist()],
        inputs=[_input_name(dump, record, index) for index in range(len(record.inputs))],
        ops=record.ops,
    )


def _some(names: list[str], limit: int = 8) -> str:
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _first_words(dump: Dump, holder: Record) -> np.ndarray:
    if holder.kept != "full" or not holder.n_rows:
        return np.zeros(0, word_dtype(holder.dtype))
    return np.asarray(dump.read_words(holder, 0, 1)[0, :FIRST_VALUES])


def _statistics(dump: Dump, holder: Record, rows: Rows) -> dict[str, float] | None:
    """Of all rows together: out of the words, else out of the statistics of the rows."""
    if holder.kept == "full":
        blocks = dump.read_blocks(holder, _BLOCK)
        per_row = [row_statistics(words, holder.dtype) for _, words in blocks]
    elif rows.statistics is not None:
        per_row = [rows.statistics]
    else:
        return None
    table = np.concatenate([np.zeros((1, len(STATISTICS))), *per_row])
    total = table.sum(axis=0)
    total[0] = table[:, 0].max()
    return dict(zip(STATISTICS, total.tolist(), strict=True))


def _spans(rows: Rows) -> Iterator[RowSpan]:
    """Runs of rows with one sequence and visit and ascending positions."""
    current: RowSpan | None = None
    for sequence, position, visit in zip(
        rows.sequence.tolist(), rows.position.tolist(), rows.visit.tolist(), strict=True
    ):
        if current and (current.sequence, current.visit, current.last + 1) == (
            sequence,
            visit,
            position,
        ):
            current.last = position
            continue
        if current:
            yield current
        current = RowSpan(sequence=sequence, first=position, last=position, visit=visit)
    if current:
        yield current


def _input_name(dump: Dump, record: Record, index: int) -> str:
    source = record.inputs[index]
    if source.kind == "record" and source.seq is not None:
        producer = dump.record(source.seq, record.rank)
        return f"{producer.tap}, step {producer.step}"
    return f"{source.kind} {source.name or ''}".strip()
