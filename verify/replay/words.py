"""Between raw words and tensors of torch, without touching a bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_SIGNED = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def to_tensor(words: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the shape of ``words`` that holds them as its bits."""
    plain = np.ascontiguousarray(words).view(_SIGNED[words.itemsize])
    return torch.from_numpy(plain.copy()).view(dtype)


def overwrite(target: torch.Tensor, source: torch.Tensor) -> None:
    """Give ``target`` the bits of ``source`` [same shape, same dtype], in place, so that all its
    views and readers see them."""
    with torch.no_grad():
        if target.is_complex():
            target.copy_(source)
            return
        # Through integers: no conversion may touch NaN payloads.
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[
            target.element_size()
        ]
        target.detach().view(kind).copy_(source.view(kind))


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements share memory, as in expanded tensors: those cannot be overwritten."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in pairs)
