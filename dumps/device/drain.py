"""Bringing steps of the ring to the host: asynchronously, each once, and counting those lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from verify.dumps.device.buffers import TapBuffers
from verify.dumps.device.layout import Region
from verify.formats import word_dtype


@dataclass(frozen=True, slots=True)
class DrainedStep:
    """One step as the device left it. ``index`` counts the steps of the ring from 0."""

    index: int
    regions: list[Region]
    """Those written in this step, in the order in which they were first seen."""
    words: np.ndarray
    """int64: the whole slot."""

    def digests(self, region: Region) -> np.ndarray:
        """uint64 [rows]."""
        return self._part(region.digests, 8 * region.observed.rows).view(np.uint64)

    def sketches(self, region: Region) -> np.ndarray | None:
        """float32 [rows, 16], where kept."""
        if not region.sketches:
            return None
        rows = region.observed.rows
        return self._part(region.sketches, 64 * rows).view(np.float32).reshape(rows, 16)

    def statistics(self, region: Region) -> np.ndarray | None:
        """float64 [rows, 7], where kept."""
        if not region.statistics:
            return None
        rows = region.observed.rows
        return self._part(region.statistics, 56 * rows).view(np.float64).reshape(rows, 7)

    def row_words(self, region: Region) -> np.ndarray | None:
        """Raw words [rows, row_length], where kept."""
        if not region.words:
            return None
        seen = region.observed
        dtype = word_dtype(seen.dtype)
        raw = self._part(region.words, dtype.itemsize * seen.rows * seen.row_length)
        return raw.view(dtype).reshape(seen.rows, seen.row_length)

    def _part(self, at: int, nbytes: int) -> np.ndarray:
        return self.words.view(np.uint8)[at : at + nbytes]


@dataclass(slots=True)
class _Fetch:
    """A copy of the ring that is under way. Two readings of the counter: before the step that it
    is about, and after it."""

    counters: Tensor
    slots: Tensor
    """int64 [n, words]: the slots of the last n steps, the oldest first."""
    regions: int
    done: torch.cuda.Event | None


@dataclass(slots=True)
class Drain:
    """Copies steps out of a ring.

        drain.before()
        graph.replay()
        drain.after()                 # enqueues copies on a side stream; nothing waits
        ...
        for step in drain.collect():  # waits for that copy alone

    ``lost``: steps that were overwritten before they were fetched. ``foreign``: steps that ran
    outside of ``before`` and ``after``, warm-up for example.
    """

    buffers: TapBuffers
    lost: int = 0
    foreign: int = 0
    _next: int = 0
    _entry: Tensor = field(init=False)
    _pending: list[_Fetch] = field(default_factory=list)
    _side: torch.cuda.Stream | None = None
    _spare: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._entry = self.buffers.counter().clone()
        if self.buffers.device.type == "cuda":
            self._side = torch.cuda.Stream(self.buffers.device)  # type: ignore[no-untyped-call]

    def before(self) -> None:
        """A step begins: what ran since the last one is not its own."""
        self._entry = self.buffers.counter().clone()

    def after(self, steps: int | None = None) -> None:
        """The step has been issued: copy what it will leave.

        Args:
            steps: how many times the model ran since ``before``; None: nobody knows, and the whole
                ring is copied.
        """
        regions = len(self.buffers.layout.regions)
        if self._side is None:
            counters, slots = self._last(steps)
            self._pending.append(_Fetch(counters, slots, regions, None))
            return
        self._side.wait_stream(torch.cuda.current_stream(self.buffers.device))
        with torch.cuda.stream(self._side):
            counters, slots = (self._to_host(part) for part in self._last(steps))
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        self._entry.record_stream(self._side)
        self._pending.append(_Fetch(counters, slots, regions, done))

    def _last(self, steps: int | None) -> tuple[Tensor, Tensor]:
        """Both readings of the counter, and the slots of the last ``steps`` steps, oldest first."""
        counter, count = (
            self.buffers.counter(),
            min(steps or self.buffers.slots, self.buffers.slots),
        )
        back = torch.arange(-count, 0, device=self.buffers.device)
        chosen = (counter + back) % self.buffers.slots  # never negative: as in Python
        slots = self.buffers.slot_words().index_select(0, chosen)
        return torch.cat([self._entry, counter]), slots

    def _to_host(self, tensor: Tensor) -> Tensor:
        """A copy under way in pinned memory, which is kept for the next one: it is slow to get."""
        spare = next((i for i, s in enumerate(self._spare) if s.numel() >= tensor.numel()), None)
        if spare is None:
            host = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=True)
        else:
            host = self._spare.pop(spare)
        part = host[: tensor.numel()].view(tensor.shape)
        part.copy_(tensor, non_blocking=True)
        return part

    def collect(self) -> Iterator[list[DrainedStep]]:
        """For each ``after`` that was not collected yet, the steps that ran before it."""
        pending, self._pending = self._pending, []
        for fetch in pending:
            if fetch.done is not None:
                fetch.done.synchronize()
            yield self._read(fetch)
            if fetch.done is not None:
                self._spare += [_whole(fetch.slots), _whole(fetch.counters)]

    def _read(self, fetch: _Fetch) -> list[DrainedStep]:
        entry, stop = fetch.counters.tolist()
        self.foreign += max(0, entry - self._next)
        start = max(entry, self._next)
        copied = len(fetch.slots)
        oldest = max(start, stop - copied)
        self.lost += oldest - start
        self._next = stop
        words = fetch.slots.numpy()
        regions = self.buffers.layout.regions[: fetch.regions]
        at = np.array([region.header // 8 for region in regions], np.int64)
        steps = []
        for index in range(oldest, stop):
            slot = words[index - stop + copied].copy()  # the pinned memory is used again
            stamps = slot[at] if len(at) else at
            if (stamps > index + 1).any():  # a later step is writing here already
                self.lost += 1
                continue
            written = np.flatnonzero(stamps == index + 1)
            steps.append(DrainedStep(index, [regions[i] for i in written], slot))
        return steps


def _whole(part: Tensor) -> Tensor:
    """The pinned memory that ``part`` is the beginning of."""
    return torch.empty(0, dtype=part.dtype).set_(part.untyped_storage())
