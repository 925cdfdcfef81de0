"""Full tensors from the device to the host: through a pinned ring, on a stream of their own.

The stream that computes only ever makes a device-side snapshot, at the speed of device memory; the
slow way to the host runs beside it. The host waits in ``flush``, at the end of a step, and where the
ring is full and back-pressure was asked for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from verify.dumps.capture.tensor_words import bits
from verify.errors import ArgumentError, StorageError

WhenFull = Literal["wait", "drop"]
Sink = Callable[[Any, np.ndarray], None]
"""Takes the tag of a tensor and its raw bytes, which are valid during the call only."""

_ALIGNMENT = 256
_RESERVE = 64 << 20  # bytes that stay free on the disk


class _Entry(NamedTuple):
    tag: Any
    start: int
    stop: int
    nbytes: int
    done: torch.cuda.Event | None
    snapshot: Tensor | None


class PinnedRing:
    """A ring of pinned host memory that tensors of one device pass through, in order.

    Args:
        sink: where they end up.
        nbytes: size of the ring, at least that of the largest tensor.
        when_full: ``wait`` for the oldest tensor, or ``drop`` the new one and count it in ``lost``,
            by tag.
        byte_budget: bytes that may pass in all.
        folder: where the sink writes; there must be room for each tensor.

    On the CPU tensors are copied and handed over in ``flush`` as well, so that both behave alike.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        nbytes: int = 1 << 30,
        when_full: WhenFull = "wait",
        byte_budget: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if when_full not in ("wait", "drop"):
            raise ArgumentError("unknown policy", found=when_full, allowed="wait, drop")
        self.lost: list[Any] = []
        self.passed = 0
        self._sink, self._when_full, self._folder = sink, when_full, folder
        self._budget = byte_budget
        self._size = nbytes // _ALIGNMENT * _ALIGNMENT
        self._ring = torch.empty(
            self._size, dtype=torch.uint8, pin_memory=torch.cuda.is_available()
        )
        self._entries: deque[_Entry] = deque()
        self._head = 0  # where the next tensor goes; positions count on and on
        self._side: torch.cuda.Stream | None = None

    def put(self, tag: Any, tensor: Tensor) -> bool:
        """Take ``tensor`` as it is now; False when it was dropped.

        Raises:
            StorageError: the budget is spent, or the disk has no room for it.
        """
        nbytes = tensor.numel() * tensor.element_size()
        self._check_room(tag, nbytes)
        while (start := self._find(nbytes)) is None:
            if self._when_full == "drop":
                self.lost.append(tag)
                return False
            self._hand_over(self._entries.popleft())
        self.passed += nbytes
        stop = start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        self._head = stop
        at = start % self._size
        target = self._ring[at : at + nbytes]
        raw = bits(tensor).contiguous().reshape(-1).view(torch.uint8)
        if tensor.is_cuda:
            self._entries.append(self._copy(tag, tensor, raw, target, start, stop))
        else:
            target.copy_(raw)
            self._entries.append(_Entry(tag, start, stop, nbytes, None, None))
        return True

    def _copy(
        self, tag: Any, tensor: Tensor, raw: Tensor, target: Tensor, start: int, stop: int
    ) -> _Entry:
        """Snapshot on the stream that computes, copy on the other."""
        if raw.data_ptr() == tensor.data_ptr():
            raw = raw.clone()  # whoever owns the tensor may write to it while the copy runs
        current = torch.cuda.current_stream(tensor.device)
        if self._side is None:
            self._side = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            target.copy_(raw, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        raw.record_stream(self._side)
        return _Entry(tag, start, stop, target.numel(), done, raw)

    def _find(self, nbytes: int) -> int | None:
        """Position for ``nbytes`` contiguous bytes; None while the ring is too full."""
        if nbytes > self._size:
            raise ArgumentError(
                "a tensor is larger than the ring",
                found=f"{nbytes} bytes",
                allowed=f"{self._size} bytes",
                hint="make the ring larger",
            )
        start = self._head
        if start % self._size + nbytes > self._size:  # does not fit before the end: begin anew
            start += self._size - start % self._size
        tail = self._entries[0].start if self._entries else start
        return start if start + nbytes - tail <= self._size else None

    def _check_room(self, tag: Any, nbytes: int) -> None:
        if self._budget is not None and self.passed + nbytes > self._budget:
            raise StorageError(
                "the byte budget of the capture is spent",
                where=tag,
                found=f"{nbytes} bytes",
                allowed=f"{self._budget - self.passed} bytes left",
                hint="raise the budget or keep fewer taps in full",
            )
        if self._folder is None:
            return
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        waiting = sum(entry.nbytes for entry in self._entries)
        if nbytes + waiting + _RESERVE > free:
            raise StorageError(
                "the disk is nearly full",
                where=self._folder,
                found=f"{nbytes + waiting} bytes to write",
                allowed=f"{max(0, free - _RESERVE)} bytes free",
                hint="free some space or keep fewer taps in full",
            )

    def poll(self) -> int:
        """Hand over what has arrived, without waiting; how many tensors."""
        count = 0
        while self._entries and (done := self._entries[0].done) is not None and done.query():  # type: ignore[no-untyped-call]
            self._hand_over(self._entries.popleft())
            count += 1
        return count

    def flush(self) -> None:
        """Hand over everything: the end of a step."""
        while self._entries:
            self._hand_over(self._entries.popleft())

    def _hand_over(self, entry: _Entry) -> None:
        if entry.done is not None:
            entry.done.synchronize()
        at = entry.start % self._size
        self._sink(entry.tag, self._ring[at : at + entry.nbytes].numpy())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.flush()
