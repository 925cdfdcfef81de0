"""Constant tables on a device: weights of lanes, the plan of the sketch, values of 8-bit codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from verify.dumps import digests, summaries
from verify.formats import decode, get_format
from verify.gpu.errors import KernelError

_LEAST = 1 << 15  # lanes that a table covers at least


@dataclass(frozen=True, eq=False)
class Tables:
    """``weights``: int64 [4, units, 2], the weights of lanes 8u .. 8u + 7; ``plan``: int32
    [groups], rotation | negated buckets << 16. ``lanes``: how many lanes they cover."""

    weights: Tensor
    plan: Tensor
    lanes: int


_tables: dict[str, Tables] = {}


def tables(device: torch.device, lanes: int) -> Tables:
    """Tables for lane indices below ``lanes``, made at the first call and doubled when too short.

    Raises KernelError when that would happen inside a CUDA graph capture. Tables that were handed
    out stay alive: a captured graph may hold their addresses.
    """
    found = _tables.get(str(device))
    if found is None or found.lanes < lanes:
        if torch.cuda.is_current_stream_capturing():
            raise KernelError(
                "the weight table is too short, and cannot be made while a graph is captured",
                found=f"{lanes} lanes",
                hint="run the call once before the capture, on the same device",
            )
        if found is not None:
            _outgrown.append(found)
        size = max(_LEAST, 1 << (lanes - 1).bit_length())
        found = _tables[str(device)] = _make(device, size)
    return found


_outgrown: list[Tables] = []


def _make(device: torch.device, lanes: int) -> Tables:
    weights = digests.random_words(digests.WEIGHT_STREAM, 0, lanes) | np.uint64(1)
    planes = np.ascontiguousarray(weights.view(np.int64).reshape(-1, 4, 2).transpose(1, 0, 2))
    return Tables(
        torch.from_numpy(planes).to(device), torch.from_numpy(sketch_words(lanes)).to(device), lanes
    )


def sketch_words(elements: int) -> np.ndarray:
    """int32 [groups]: where the elements of each group of 16 go, rotation | negated << 16."""
    plan = summaries.sketch_plan(0, elements)
    negated = (plan.sign < 0).reshape(-1, summaries.BUCKETS)
    bits = (negated.astype(np.int64) << np.arange(summaries.BUCKETS)).sum(axis=1)
    rotation = plan.source.reshape(-1, summaries.BUCKETS)[:, 0] % summaries.BUCKETS
    words: np.ndarray = (rotation | bits << 16).astype(np.uint32).view(np.int32)
    return words


@lru_cache(maxsize=64)
def code_values(dtype: str, device: str) -> Tensor:
    """float32 [256]: the values of the codes of an 8-bit (or narrower) dtype."""
    codes = np.arange(256, dtype=np.uint8) & np.uint8((1 << get_format(dtype).bits) - 1)
    return torch.from_numpy(decode(codes, dtype).astype(np.float32)).to(device)
