"""The words of matched rows, in blocks of bounded size, from tensors that are verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment, rows_by_pair
from verify.compare.elements import Words
from verify.compare.index import RowIndex
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.formats import word_dtype

BLOCK_BYTES = 2 << 20
"""Bytes of one run that a comparison holds at a time (a row longer than this is read whole). Smaller
than the last cache, so that what was read is still there to be hashed and compared."""


@dataclass(slots=True)
class Pair:
    """Matched rows between one record of A and one of B, by row numbers in their matrices."""

    a: Record
    b: Record
    rows_a: NDArray[np.int64]
    rows_b: NDArray[np.int64]
    at: NDArray[np.int64]
    """Where these rows stand in the alignment."""


def pairs_of(alignment: Alignment, at: NDArray[np.int64]) -> Iterator[Pair]:
    """Cut the matched rows ``at`` (numbers into the alignment) into pairs, in A's order."""
    for a, b, rows in rows_by_pair(alignment, at):
        entries_a, entries_b = alignment.rows_a[rows], alignment.rows_b[rows]
        yield Pair(
            alignment.a.records[a],
            alignment.b.records[b],
            alignment.a.rows(entries_a),
            alignment.b.rows(entries_b),
            rows,
        )


def read_pair(dump_a: Dump, dump_b: Dump, pair: Pair) -> Iterator[tuple[slice, Words, Words]]:
    """Blocks of a pair: which of its rows, and their words ``[rows, row_length]`` in A and B.

    Raises:
        CorruptDumpError: words are not those that were stored; at the end of the pair where all
            its rows are read in one pass, so use nothing of a pair before its end.
    """
    bytes_a, bytes_b = _row_bytes(pair.a), _row_bytes(pair.b)
    step = max(1, BLOCK_BYTES // max(1, bytes_a, bytes_b))
    if _is_whole(pair.a, pair.rows_a) and _is_whole(pair.b, pair.rows_b):
        blocks_a = dump_a.read_blocks(pair.a, step * bytes_a)
        blocks_b = dump_b.read_blocks(pair.b, step * bytes_b)
        for (start, words_a), (_, words_b) in zip(blocks_a, blocks_b, strict=True):
            yield slice(start, start + len(words_a)), words_a, words_b
        return
    for start in range(0, len(pair.rows_a), step):
        some = slice(start, start + step)
        words_a = _read_some(dump_a, pair.a, pair.rows_a[some])
        yield some, words_a, _read_some(dump_b, pair.b, pair.rows_b[some])


def read_entries(index: RowIndex, entries: NDArray[np.int64]) -> Words:
    """Words [entries, row_length] of rows of one run, in the order asked for; the records that
    they stand in must agree in dtype and row length.

    Raises:
        CorruptDumpError: the words are not those that were stored.
    """
    found: list[Words] = []
    numbers = index.record[entries]
    for some in np.split(np.arange(len(entries)), np.flatnonzero(np.diff(numbers)) + 1):
        if some.size:
            record = index.records[int(numbers[some[0]])]
            found.append(_read_some(index.dump, record, index.rows(entries[some])))
    return np.concatenate(found)


def _row_bytes(record: Record) -> int:
    return record.row_length * word_dtype(record.dtype).itemsize


def _is_whole(record: Record, rows: NDArray[np.int64]) -> bool:
    """Whether the rows are all rows of the record, in order."""
    if len(rows) != record.n_rows:
        return False
    return len(rows) == 1 or bool((np.diff(rows) == 1).all())


def _read_some(dump: Dump, record: Record, rows: NDArray[np.int64]) -> Words:
    """Rows by number, in the order asked for, one read a run of neighbours."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    runs = [
        dump.read_words(record, int(run[0]), int(run[-1]) + 1)
        for run in np.split(rows, cuts)
        if run.size
    ]
    return runs[0] if len(runs) == 1 else np.concatenate(runs)
