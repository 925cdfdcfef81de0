"""Which rows were computed from the same tokens.

After the first token on which two runs part, a row at the same position was computed from another
text. Its difference says nothing about arithmetic, so it is set apart and counted, not compared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment
from verify.compare.index import RowIndex
from verify.dumps.format.tokens import TOKENS_IN
from verify.formats import decode

_NEVER = np.iinfo(np.int64).max


def divergence(alignment: Alignment) -> dict[str, int]:
    """Sequence -> first position at which the two runs were given another token.

    A sequence that never parts is absent. Only rows of the tap ``tokens.in`` that both runs hold
    count: rows that one run alone holds match nothing anyway.

    Raises:
        CorruptDumpError: a token tensor is not what was stored.
    """
    a, b = alignment.a, alignment.b
    is_token = a.is_of(lambda record: record.tap == TOKENS_IN)
    at = np.flatnonzero(is_token[a.record[alignment.rows_a]])
    entries = alignment.rows_a[at]
    ids_a, known_a = _first_words(a, entries)
    ids_b, known_b = _first_words(b, alignment.rows_b[at])
    parts = entries[known_a & known_b & (ids_a != ids_b)]
    first: dict[str, int] = {}
    for code in np.unique(a.sequence[parts]):
        positions = a.position[parts[a.sequence[parts] == code]]
        first[a.sequences[code]] = int(positions.min())
    return first


def other_context(alignment: Alignment, parted: dict[str, int]) -> NDArray[np.bool_]:
    """For each matched row whether the tokens up to its position differ between the runs.

    The token at the parting position itself is compared (it shows the parting), and nothing else
    there or after.
    """
    a, rows = alignment.a, alignment.rows_a
    first = np.array([parted.get(name, _NEVER) for name in a.sequences] or [_NEVER], np.int64)
    if not parted:
        return np.zeros(len(rows), np.bool_)
    is_token = a.is_of(lambda record: record.tap == TOKENS_IN)
    limit = first[a.sequence[rows]]
    after_token = is_token[a.record[rows]] & (limit != _NEVER)
    return np.asarray(a.position[rows] >= limit + after_token)


def _first_words(
    index: RowIndex, entries: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The token id of each entry, and whether it was kept."""
    ids = np.zeros(len(entries), np.int64)
    known = np.zeros(len(entries), np.bool_)
    usable = index.full & (index.records.by_kind(lambda kind: kind.row_length, np.int64) == 1)
    numbers = index.record[entries]
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    for some in np.split(np.arange(len(entries)), cuts):
        if not some.size or not usable[numbers[some[0]]]:
            continue
        record = index.records[int(numbers[some[0]])]
        words = decode(index.dump.read_words(record), record.dtype)[:, 0]
        ids[some] = words[index.rows(entries[some])].astype(np.int64)
        known[some] = True
    return ids, known
