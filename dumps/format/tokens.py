"""Token ids of a run, from the taps that saw them and from the manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from verify.dumps.format.schema import Record
from verify.formats import decode

if TYPE_CHECKING:
    from verify.dumps.format.reader import Dump

TOKENS_IN: Final = "tokens.in"
TOKENS_OUT: Final = "tokens.out"


@dataclass(slots=True)
class TokenTrack:
    """The token ids of one sequence."""

    sequence: str
    prompt: list[int]
    generated: list[int] = field(default_factory=list)
    """Chosen ids in order: the first was chosen by the logits at position ``len(prompt) - 1``."""
    entered: dict[int, int] = field(default_factory=dict)
    """Position -> id that the model was given there (tap ``tokens.in``, the last visit)."""
    chosen: dict[int, int] = field(default_factory=dict)
    """Position -> id that its logits chose (tap ``tokens.out``, the last visit)."""

    @property
    def first_choice(self) -> int:
        """Position whose logits chose the first generated token."""
        return len(self.prompt) - 1


def token_tracks(dump: Dump) -> dict[str, TokenTrack]:
    """Sequence id -> track. Where ``tokens.out`` was kept in full it is what counts, since an open
    manifest has no generated ids yet; otherwise the manifest's list stands.

    Raises:
        CorruptDumpError: a token tensor is not what was stored.
    """
    listed = {s.id: s for s in dump.manifest.workload.sequences}
    tracks = {name: TokenTrack(name, list(s.prompt)) for name, s in listed.items()}
    records = dump.table()
    for number in records.where(lambda kind: kind.tap in (TOKENS_IN, TOKENS_OUT)).tolist():
        record = records[number]
        if dump.holder(record).kept == "full":
            _enter(dump, record, tracks)
    for name, track in tracks.items():
        track.generated = _run_from(track.chosen, track.first_choice)
        if not track.chosen and name in listed:
            track.generated = list(listed[name].generated)
    return tracks


def _enter(dump: Dump, record: Record, tracks: dict[str, TokenTrack]) -> None:
    rows = dump.rows(record)
    ids = decode(dump.read_words(record), record.dtype)[:, :1]
    for sequence, position, row in zip(rows.sequence, rows.position, ids, strict=True):
        if sequence is None or not len(row):
            continue
        track = tracks.setdefault(sequence, TokenTrack(sequence, []))
        target = track.entered if record.tap == TOKENS_IN else track.chosen
        target[int(position)] = int(np.asarray(row[0]))


def _run_from(chosen: dict[int, int], start: int) -> list[int]:
    """Ids at ``start``, ``start + 1``, ... up to the first position without one."""
    found: list[int] = []
    while (position := start + len(found)) in chosen:
        found.append(chosen[position])
    return found
