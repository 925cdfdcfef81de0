"""Whether a replayed graph reads the inputs of its own step, or those of another.

A captured graph reads memory, not arguments: a caller that passes a new tensor, or forgets to copy
into the old one, has the graph compute with block tables and lengths of the time of its capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch

from verify.dumps.capture.tensor_words import tensor_digest
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record

PREFIX: Final = "inputs."
ADVANCING: Final = ("positions", "seq_lens", "lengths", "slot_mapping", "out_cache_loc")
"""Inputs that differ from step to step when positions do. Block tables need not."""

Kind = Literal["moved", "not copied", "not what was given", "does not advance", "other positions"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A tensor at one time: where it lies, and the digest of dtype, shape and words."""

    address: int
    digest: str


@dataclass(frozen=True, slots=True)
class StaleInput:
    """An input that a graph cannot have meant to read. ``steps``: of the dump, where one was asked."""

    name: str
    kind: Kind
    reason: str
    steps: tuple[int, ...] = ()


def snapshot(inputs: Mapping[str, torch.Tensor]) -> dict[str, Snapshot]:
    """Address and content of each tensor now. It waits for the device."""
    return {
        name: Snapshot(tensor.data_ptr(), tensor_digest(tensor, name))
        for name, tensor in inputs.items()
    }


def compare_inputs(
    captured: Mapping[str, Snapshot],
    given: Mapping[str, Snapshot],
    read: Mapping[str, Snapshot] | None = None,
) -> list[StaleInput]:
    """What was there when a graph was captured, against what a caller means a replay to read.

    Args:
        captured: of the tensors that the graph was captured with, at that time.
        given: of the tensors that the caller passes, or has written to, before the replay.
        read: what the replay read, of the captured tensors right before it; ``address`` is not
            looked at.
    """
    found = []
    for name, wanted in given.items():
        old = captured.get(name)
        seen = None if read is None else read.get(name)
        if seen is not None and seen.digest == wanted.digest:
            continue
        if seen is not None:
            same = old is not None and seen.digest == old.digest
            text = "the content of the time of capture" if same else "other content than was given"
            kind: Kind = "not copied" if same else "not what was given"
            found.append(StaleInput(name, kind, f"the replay read {text}"))
        elif old is not None and old.address != wanted.address:
            reason = f"the graph reads {old.address:#x}, the caller passes {wanted.address:#x}"
            found.append(StaleInput(name, "moved", reason))
    return found


def stale_inputs(dump: Dump, advancing: tuple[str, ...] = ADVANCING) -> list[StaleInput]:
    """Recorded inputs (``inputs.<name>``) that are not those of their step.

    ``positions`` are held against the rows of the step. Others of ``advancing`` have to differ from
    the last step of their shape where that computed other positions of the same sequences.

    Raises:
        CorruptDumpError: words are not what was stored.
    """
    steps: dict[int, list[Record]] = {}
    for record in dump.records():
        steps.setdefault(record.step, []).append(record)
    rows = {step: _rows(dump, records) for step, records in steps.items()}
    found: dict[str, tuple[Kind, list[int]]] = {}
    before: dict[tuple[str, tuple[int, ...]], tuple[int, np.ndarray]] = {}
    for step, records in steps.items():
        for record in records:
            name = record.tap.removeprefix(PREFIX)
            if name == record.tap or name not in advancing or record.kept != "full":
                continue
            words = dump.read_words(record)
            if name == "positions" and not _are_positions(dump, record, words):
                found.setdefault(name, ("other positions", []))[1].append(step)
            key = (name, tuple(record.shape))
            last = before.get(key)
            same = last is not None and name != "positions" and np.array_equal(last[1], words)
            if same and last is not None and _advanced(rows[last[0]], rows[step]):
                found.setdefault(name, ("does not advance", []))[1].append(step)
            before[key] = (step, words)
    return [
        StaleInput(
            name, kind, f"{_REASONS[kind]} in {len(at)} steps, the first is {at[0]}", tuple(at)
        )
        for name, (kind, at) in found.items()
    ]


_REASONS: Final = {
    "other positions": "what was read are not the positions of the step",
    "does not advance": "what was read is that of an earlier step at other positions",
}


def _rows(dump: Dump, records: list[Record]) -> list[tuple[str, int]]:
    """Sequence and position of every row that a step computed."""
    for record in records:
        if "t" in record.axes.split() and record.kept != "same":
            rows = dump.rows(record)
            pairs = zip(rows.sequence.tolist(), rows.position.tolist(), strict=True)
            return [(name, at) for name, at in pairs if name is not None]
    return []


def _advanced(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> bool:
    """Whether a step has the rows of the same sequences, all at other positions."""
    pairs = list(zip(before, now, strict=False))
    return len(before) == len(now) > 0 and all(x[0] == y[0] and x[1] != y[1] for x, y in pairs)


def _are_positions(dump: Dump, record: Record, words: np.ndarray) -> bool:
    rows = dump.rows(record)
    real = np.array([name is not None for name in rows.sequence], bool)
    if len(words) != len(rows) or words.shape[1] != 1:
        return True  # several axes a token: nothing to hold them against
    return bool((words[real, 0].astype(np.int64) == rows.position[real]).all())
