"""What a step looks like when only its rows change: made once, used for every step like it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from verify.dumps.capture.fingerprints import Keep, inferred_axes
from verify.dumps.capture.positions import PADDING, Step
from verify.dumps.capture.tensor_words import dtype_name
from verify.dumps.digests import salt
from verify.dumps.format.block import StepTemplate
from verify.dumps.format.schema import Input, Record
from verify.dumps.layout import ATTRIBUTE, Layouts
from verify.errors import ArgumentError

Seen = tuple[str, torch.Size, tuple[int, ...], torch.dtype, int]
"""Tap, shape, strides, dtype; first byte in its lane of the stage, or -1."""


class Lane(NamedTuple):
    """Staged tensors of one kind. ``matrices``: (first word, last word + 1, row length, places of
    the rows among those of the step)."""

    key: tuple[torch.dtype, int]
    dtype: str
    matrices: list[tuple[int, int, int, np.ndarray]]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The records of a step, where their words are staged, and what names their rows.

    ``named``: a record's rows are ``tokens`` (all positions), ``kept`` (those whose logits are
    computed) or ``one``.
    """

    template: StepTemplate
    lanes: list[Lane]
    named: list[str]
    starts: np.ndarray
    salts: np.ndarray
    """What finalising mixes into the sum of each row, uint64 [rows]."""

    def rows_of(self, index: int) -> slice:
        """Places of the rows of record ``index``."""
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def names(
        self, step: Step, visits: Counter[tuple[str, int]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sequence, position and visit of all rows. ``visits`` counts records of one row."""
        every, kept = step.row_names(), step.row_names(step.kept)
        sequence, position, visit = [], [], []
        for record, kind in zip(self.template.records, self.named, strict=True):
            if kind == "one":
                key = (record.tap, record.occurrence)
                sequence.append(_NO_SEQUENCE)
                position.append(_NO_POSITION)
                visit.append(np.array([visits[key]], np.int64))
                visits[key] += 1
                continue
            rows = every if kind == "tokens" else kept
            sequence.append(rows.sequence)
            position.append(rows.position)
            visit.append(rows.visit)
        return np.concatenate(sequence), np.concatenate(position), np.concatenate(visit)


_NO_SEQUENCE = np.array([""], object)
_NO_POSITION = np.array([PADDING], np.int64)


def plan_step(
    seen: list[Seen], step: Step, given: Mapping[str, str], keep: Keep, layouts: Layouts
) -> StepPlan:
    """The plan of a step whose taps saw ``seen``, in this order.

    Raises:
        ArgumentError: a tensor whose rows are not positions of the step.
    """
    occurrences: Counter[str] = Counter()
    records, named = [], []
    for tap, shape, strides, dtype, _ in seen:
        record, kind = _record(tap, shape, strides, dtype, occurrences[tap], step, given, keep)
        occurrences[tap] += 1
        if layout := layouts.of(tap):
            record.attributes = {ATTRIBUTE: str(layout.of(len(shape)))}
        records.append(record)
        named.append(kind)
    template = StepTemplate(records)
    starts = np.concatenate([[0], np.cumsum(template.counts)])
    salts = np.repeat([salt(r.dtype, r.row_length)[0] for r in records], template.counts)
    return StepPlan(
        template, _lanes(seen, records, starts), named, starts, salts.astype(np.uint64, copy=False)
    )


def _record(
    tap: str,
    shape: torch.Size,
    strides: tuple[int, ...],
    dtype: torch.dtype,
    occurrence: int,
    step: Step,
    given: Mapping[str, str],
    keep: Keep,
) -> tuple[Record, str]:
    kept = None if step.kept is None else len(step.kept)
    axes = given.get(tap) or inferred_axes(shape, strides, step.batch, step.tokens, kept)
    names = axes.split()
    size = dict(zip(names, shape, strict=True))
    rows, kind = 1, "one"
    if "b" in size or "t" in size:
        rows = size.get("b", 1) * size.get("t", 1)
        every = step.batch * step.tokens
        kind = "tokens" if rows == every else "kept"
        if kind == "kept" and (kept is None or rows != step.batch * kept):
            raise ArgumentError(
                "the token axis of a tensor does not fit the positions of the step",
                where=tap,
                found=f"shape {list(shape)} as axes {axes!r}",
                allowed=f"{step.batch} sequences of {step.tokens} positions",
            )
    length = math.prod(n for name, n in size.items() if name not in "bt")
    record = Record(
        seq=0, step=0, tap=tap, occurrence=occurrence, axes=axes, dtype=_name(dtype, tap),
        shape=list(shape), strides=list(strides), inputs=[Input(kind="unknown")],
        kept="stats" if keep == "statistics" else "digest", row_length=length, n_rows=rows,
    )  # fmt: skip
    return record, kind


@lru_cache(maxsize=4096)
def _name(dtype: torch.dtype, tap: str) -> str:
    return dtype_name(torch.empty(0, dtype=dtype), tap)


def _lanes(seen: list[Seen], records: list[Record], starts: np.ndarray) -> list[Lane]:
    """Staged tensors that lie one after another and have rows of the same length, as one matrix."""
    lanes: dict[tuple[torch.dtype, int], Lane] = {}
    for index, (tap, shape, _, dtype, at) in enumerate(seen):
        if at < 0:
            continue
        record, key = records[index], (dtype, shape[-1])
        names = record.axes.split()
        if not _lead(names):
            raise ArgumentError(
                "a staged tensor has its rows inside", where=tap, found=record.axes,
                hint="name the axes of this tap",
            )  # fmt: skip
        lane = lanes.setdefault(key, Lane(key, record.dtype, []))
        first = at // dtype.itemsize
        stop = first + record.n_rows * record.row_length
        rows = np.arange(starts[index], starts[index + 1])
        last = lane.matrices[-1] if lane.matrices else None
        if last is not None and last[1] == first and last[2] == record.row_length:
            lane.matrices[-1] = (last[0], stop, last[2], np.concatenate([last[3], rows]))
        else:
            lane.matrices.append((first, stop, record.row_length, rows))
    return list(lanes.values())


def _lead(names: list[str]) -> bool:
    """Whether the axes that count rows come first."""
    return all(name in ("b", "t") for name in names[: sum(name in ("b", "t") for name in names)])


def rows_lead(tensor: torch.Tensor, step: Step, axes: str | None) -> bool:
    """Whether the rows of a tensor lie one after another, so that it can be staged."""
    kept = None if step.kept is None else len(step.kept)
    given = axes or inferred_axes(tensor.shape, tensor.stride(), step.batch, step.tokens, kept)
    return _lead(given.split())
