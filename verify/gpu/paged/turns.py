"""Calls that share scratch memory take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch


@dataclass
class _Device:
    """One lock and one completion event a device, for all workspaces that callers bring."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: torch.cuda.Event | None = None


_devices: dict[int, _Device] = {}
_devices_lock = threading.Lock()


@contextmanager
def workspace_turn(device: torch.device) -> Iterator[None]:
    """Order the launches inside after all earlier turns on ``device``, whatever their streams.

    The host does not wait. Inside a CUDA graph capture there is nothing to order with: a graph
    that uses a workspace must not be replayed beside another user of it.
    """
    if torch.cuda.is_current_stream_capturing():
        yield
        return
    index = torch.cuda.current_device() if device.index is None else device.index
    with _devices_lock:
        turns = _devices.setdefault(index, _Device())
    with turns.lock, torch.cuda.device(index):
        stream = torch.cuda.current_stream()
        if turns.done is not None:
            stream.wait_event(turns.done)
        try:
            yield
        finally:
            # Also after an error: what was launched may still run.
            turns.done = turns.done or torch.cuda.Event()  # type: ignore[no-untyped-call]
            turns.done.record(stream)
