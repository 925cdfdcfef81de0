"""Faults planted in a single operation of torch, whoever calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def planted_softmax(fault: Callable[[torch.Tensor], torch.Tensor], call: int) -> Iterator[None]:
    """Inside, aten._softmax on the CPU has ``fault`` in its result, in its call number ``call``; -1:
    in none, with the same arithmetic."""
    count = 0

    def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
        nonlocal count
        e = (x - x.amax(dim, keepdim=True)).exp()
        out = e / e.sum(dim, keepdim=True)
        count += 1
        return fault(out) if count == call + 1 else out

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_softmax", softmax, "CPU")
        yield


def one_weight_lost(out: torch.Tensor) -> torch.Tensor:
    """Of sequence 0, head 2, position 4 no longer reads position 1."""
    out[0, 2, 4, 1] = 0
    return out
