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
    """``weights``: int64 [units / 32, 4, 32, 2], the weights of lanes 8u .. 8u + 7; ``plan``: int32
    [groups], rotation | negated buckets << 16 (``sketch_words``); ``fragments``: uint8 [lanes * 56], ``weight_bytes``
    for lanes of 4, 2 and 1 bytes. ``lanes``: how many lanes they cover."""

    weights: Tensor
    plan: Tensor
    fragments: Tensor
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
    planes = np.ascontiguousarray(
        weights.view(np.int64).reshape(-1, 32, 4, 2).transpose(0, 2, 1, 3)
    )
    fragments = np.concatenate([weight_bytes(weights, width).reshape(-1) for width in (4, 2, 1)])
    weights_at, plan_at, fragments_at = (
        torch.from_numpy(part).to(device) for part in (planes, sketch_words(lanes), fragments)
    )
    return Tables(weights_at, plan_at, fragments_at, lanes)


def weight_bytes(weights: np.ndarray, width: int) -> np.ndarray:
    """Weights as operands of a matrix product of bytes: kernels/include/digest_tiles.cuh.

    Args:
        weights: uint64 [lanes], a multiple of 64 lanes.
        width: bytes of a lane.

    Byte ``16 t + i`` of a chunk of 64 bytes of a row is multiplied by its lane's weight, shifted by
    its place in the lane. Returns uint8 [chunks, 8, 4, 16]: byte g of these numbers at [:, g, t, i].
    """
    shifts = (8 * np.arange(width)).astype(np.uint64)
    shifted = (weights[:, None] << shifts).astype("<u8")
    return np.ascontiguousarray(shifted.view(np.uint8).reshape(-1, 4, 16, 8).transpose(0, 3, 1, 2))


def sketch_words(elements: int) -> np.ndarray:
    """int32 [groups]: where the elements of each group of 16 go, rotation | signs << 16. Whether
    bucket b is negated says the bit ``sign_place(b)`` of kernels/include/fingerprint.cuh."""
    plan = summaries.sketch_plan(0, elements)
    negated = (plan.sign < 0).reshape(-1, summaries.BUCKETS)
    buckets = np.arange(summaries.BUCKETS)
    places = buckets & 8 | (buckets & 1) << 2 | (buckets & 7) >> 1
    bits = (negated.astype(np.int64) << places).sum(axis=1)
    rotation = plan.source.reshape(-1, summaries.BUCKETS)[:, 0] % summaries.BUCKETS
    words: np.ndarray = (rotation | bits << 16).astype(np.uint32).view(np.int32)
    return words


@lru_cache(maxsize=64)
def code_values(dtype: str, device: str) -> Tensor:
    """float16 [256]: the values of the codes of an 8-bit (or narrower) dtype, all of them exact."""
    codes = np.arange(256, dtype=np.uint8) & np.uint8((1 << get_format(dtype).bits) - 1)
    values = decode(codes, dtype)
    halves = values.astype(np.float16)
    assert np.array_equal(halves, values, equal_nan=True), dtype
    return torch.from_numpy(halves).to(device)
