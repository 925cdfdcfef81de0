"""What records were computed from, as columns: lists that records share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format.schema import Input, Record

Numbers = NDArray[np.int64]

INPUT_KINDS: Final = ("record", "weight", "value", "unknown")
NOBODY: Final = -1
"""Stands for no record, and for no text."""


@dataclass(slots=True)
class InputLists:
    """Lists of inputs, of which records may share one."""

    starts: Numbers
    """First input of each list, and the number of inputs at the end."""
    kind: NDArray[np.int8]
    """Place in :data:`INPUT_KINDS`."""
    back: Numbers
    """``seq`` of the reader minus that of the record read; 0 for other kinds."""
    name: NDArray[np.int32]
    digest: NDArray[np.int32]
    texts: list[str]
    """What ``name`` and ``digest`` count in; :data:`NOBODY` for none."""

    @classmethod
    def empty(cls) -> InputLists:
        none = np.zeros(0, np.int32)
        starts, back = np.zeros(1, np.int64), np.zeros(0, np.int64)
        return cls(starts, np.zeros(0, np.int8), back, none, none, [])

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> InputLists:
        """One list a record."""
        texts: dict[str, int] = {}
        sources = [_coded(source, r.seq, texts) for r in records for source in r.inputs]
        columns = np.array(sources, np.int64).reshape(-1, 4).T
        counts = [len(record.inputs) for record in records]
        return cls(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]),
            columns[0].astype(np.int8),
            columns[1],
            columns[2].astype(np.int32),
            columns[3].astype(np.int32),
            list(texts),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, number: int, seq: int) -> list[Input]:
        """One list, as the record ``seq`` reads it."""
        return [
            Input(
                kind=INPUT_KINDS[self.kind[at]],
                seq=seq - int(self.back[at]) if self.kind[at] == 0 else None,
                name=self._text(self.name[at]),
                digest=self._text(self.digest[at]),
            )
            for at in range(self.starts[number], self.starts[number + 1])
        ]

    def _text(self, code: np.int32) -> str | None:
        return None if code == NOBODY else self.texts[code]


def _coded(source: Input, seq: int, texts: dict[str, int]) -> tuple[int, int, int, int]:
    name, digest = (
        NOBODY if text is None else texts.setdefault(text, len(texts))
        for text in (source.name, source.digest)
    )
    back = seq - source.seq if source.kind == "record" and source.seq is not None else 0
    return INPUT_KINDS.index(source.kind), back, name, digest


def joined_lists(pieces: list[InputLists]) -> InputLists:
    """The lists of several, one behind the other."""
    if not pieces:
        return InputLists.empty()
    codes: dict[str, int] = {}
    names, digests = [], []
    for piece in pieces:
        table = np.array(
            [*(codes.setdefault(text, len(codes)) for text in piece.texts), NOBODY], np.int32
        )
        names.append(table[piece.name])  # NOBODY is the last entry
        digests.append(table[piece.digest])
    ends = np.cumsum([0, *(len(piece.kind) for piece in pieces)])
    starts = [piece.starts[:-1] + end for piece, end in zip(pieces, ends, strict=False)]
    return InputLists(
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        np.concatenate([piece.kind for piece in pieces]),
        np.concatenate([piece.back for piece in pieces]),
        np.concatenate(names),
        np.concatenate(digests),
        list(codes),
    )
