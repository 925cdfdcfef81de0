"""Whether a row can depend on later rows, as the recorded masks tell."""

from __future__ import annotations

import numpy as np

from verify.compare.index import PADDING, RowIndex
from verify.compare.pairs import read_entries
from verify.formats import decode

MASK = ".attn.in.mask"
_LAST = 1  # column of the canonical mask: position of the last key that a row may read


def is_causal(index: RowIndex) -> bool:
    """False if some recorded mask lets a row read a later key. Without a recorded mask the model
    is taken to be causal, as one that generates text is.

    Raises:
        CorruptDumpError: a mask is not what was stored.
    """
    masks = index.records.where(
        lambda kind: kind.tap.endswith(MASK) and kind.kept == "full" and kind.row_length == 3
    )
    return not any(_reads_ahead(index, number) for number in masks.tolist())


def _reads_ahead(index: RowIndex, number: int) -> bool:
    own = index.entries(number)
    entries = np.arange(own.start, own.stop)
    entries = entries[index.sequence[entries] != PADDING]
    if not entries.size:
        return False
    last = decode(read_entries(index, entries), index.records[number].dtype)[:, _LAST]
    return bool((last.astype(np.int64) > index.position[entries]).any())
