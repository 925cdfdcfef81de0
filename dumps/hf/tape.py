"""The tokens of an earlier run, to be forced on another (teacher forcing)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xxhash

from verify.dumps.format import TokenTrack, open_dump
from verify.dumps.format.schema import Sequence, Tape
from verify.errors import NotComparableError


def read_tape(path: Path, sequences: list[Sequence]) -> tuple[list[list[int]], Tape]:
    """Ids to force on each of ``sequences``, and which run they are from.

    They are the ids that the earlier run was given, and its last choice: also where that run was
    forced itself, so that a tape can be handed on.

    Raises:
        NotComparableError: the run has none of these prompts, or no generated tokens for one.
        DumpError: ``path`` is not a readable dump.
    """
    dump = open_dump(path)
    tracks = dump.tokens()
    forced = [_ids(path, tracks, sequence) for sequence in sequences]
    state = xxhash.xxh3_128()
    for sequence, ids in zip(sequences, forced, strict=True):
        state.update(f"{sequence.id} ".encode() + np.asarray(ids, "<i8").tobytes())
    return forced, Tape(run_id=dump.manifest.run_id, digest=state.hexdigest())


def _ids(path: Path, tracks: dict[str, TokenTrack], sequence: Sequence) -> list[int]:
    # A batch may replicate a prompt more often than the earlier run did: equal prompts, equal tape.
    base = sequence.id.partition("#")[0]
    track = tracks.get(sequence.id) or tracks.get(f"{base}#0")
    if track is None or track.prompt != sequence.prompt:
        raise NotComparableError(
            "the tape is of other prompts",
            where=path,
            found=", ".join(tracks),
            allowed=sequence.id,
            hint="give the prompts, and the choice of chat template, that the earlier run had",
        )
    if not track.generated:
        raise NotComparableError("the tape has no generated tokens", where=path, found=sequence.id)
    given: list[int] = []
    for position in range(len(track.prompt), len(track.prompt) + len(track.generated)):
        fallback = track.chosen.get(position - 1, track.generated[len(given)])
        given.append(track.entered.get(position, fallback))
    return given
