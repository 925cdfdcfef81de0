"""The error word on the device, for what the host cannot check without waiting."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from verify.gpu.errors import KernelError

# Bits of kernels/include/paging.cuh.
_MEANINGS = {
    1: "a sequence length is negative or beyond a capacity",
    2: "a physical block id lies outside the cache",
}


@functools.cache
def error_word(device: torch.device) -> Tensor:
    """[1], int32: the bits that kernels on ``device`` have set since the last check."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def check_device_errors(device: torch.device | str | None = None) -> None:
    """Wait for the device and raise KernelError if a paged kernel met bad lengths or page ids.

    What was at fault was left out of the result, not read. The word is cleared. Call it after eager
    calls without host lengths, or after a graph replay.
    """
    where = torch.device("cuda" if device is None else device)
    if where.index is None and where.type == "cuda":
        where = torch.device("cuda", torch.cuda.current_device())
    word = error_word(where)
    bits = int(word.item())
    word.zero_()
    found = [meaning for bit, meaning in _MEANINGS.items() if bits & bit]
    if found:
        raise KernelError("a paged kernel met bad input", where=where, found="; ".join(found))
