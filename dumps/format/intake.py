"""What a writer takes in: a record that agrees with its rows and its words."""

from __future__ import annotations

import msgspec
import numpy as np

from verify.dumps.format.schema import Record, Rows
from verify.dumps.summaries import BUCKETS, STATISTICS
from verify.errors import ArgumentError
from verify.formats import word_dtype


def check_rows(record: Record, rows: Rows | None) -> None:
    """Enter ``n_rows`` and check that every column of ``rows`` has as many entries.

    Raises:
        ArgumentError: no rows, or columns of different sizes.
    """
    if rows is None:
        raise ArgumentError("a record comes without rows", where=record_name(record))
    record.n_rows = len(rows)
    check_columns(rows, len(rows), record_name(record))


def check_columns(rows: Rows, n: int, where: str) -> None:
    """Raise ArgumentError unless every column of ``rows`` has ``n`` entries."""
    expected = {"sequence": (n,), "position": (n,), "visit": (n,), "digest": (n,)}
    optional = {"sketch": (n, BUCKETS), "statistics": (n, len(STATISTICS))}
    present = {name: shape for name, shape in optional.items() if getattr(rows, name) is not None}
    for name, shape in {**expected, **present}.items():
        if np.shape(getattr(rows, name)) != shape:
            raise ArgumentError(
                f"the column {name!r} of Rows has another shape than the rows need",
                where=where,
                found=list(np.shape(getattr(rows, name))),
                allowed=list(shape),
            )


def check_attributes(record: Record) -> None:
    """Raise ArgumentError unless ``attributes`` can be written as JSON."""
    try:
        msgspec.json.encode(record.attributes)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "an attribute cannot be written as JSON",
            where=record_name(record),
            found=error,
            allowed="numbers, text, true, false, null, lists and tables of them",
        ) from None


def check_words(record: Record, words: np.ndarray | None) -> None:
    """Raise ArgumentError unless there are words exactly where ``kept`` says so, of the right shape."""
    if record.kept != "full":
        if words is not None:
            raise ArgumentError(
                "words are stored for kept='full' only",
                where=record_name(record),
                found=record.kept,
            )
        return
    expected = (record.n_rows, record.row_length)
    dtype = word_dtype(record.dtype)
    if words is None or words.shape != expected or words.dtype != dtype:
        found = None if words is None else f"{words.dtype} {list(words.shape)}"
        raise ArgumentError(
            "the words are not the row matrix of their record",
            where=record_name(record),
            found=found,
            allowed=f"{dtype} {list(expected)}",
        )


def own(words: np.ndarray | None, owned: bool) -> np.ndarray | None:
    """``words`` as a C-contiguous array that nobody else writes to."""
    if words is None or (owned and words.flags.c_contiguous):
        return words
    return np.array(words, order="C", copy=True)


def record_name(record: Record) -> str:
    """How a message names a record."""
    return f"record {record.seq} ({record.tap}, step {record.step})"
