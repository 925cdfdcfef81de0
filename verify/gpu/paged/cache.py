"""The paged cache that the bridge and the decode step share, and the checks on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from verify.gpu.checks import check_dims, check_dtype
from verify.gpu.errors import DtypeError, LayoutError, SemanticsError, ShapeError

CACHE_AXES = "blocks page heads head_dim"
_CODE_TYPES = (torch.uint8, torch.float8_e4m3fn)


@dataclass(frozen=True, eq=False)
class PagedCache:
    """Checked K and V caches with their table.

    k, v: [blocks, page, heads, head_dim], E4M3 codes, each with its own strides, last one 1.
    block_table: [B, max_blocks], int32. seq_lens: [B], int32. All on one device.
    """

    k: Tensor
    v: Tensor
    block_table: Tensor
    seq_lens: Tensor

    @property
    def blocks(self) -> int:
        return self.k.shape[0]

    @property
    def page(self) -> int:
        return self.k.shape[1]

    @property
    def heads(self) -> int:
        return self.k.shape[2]

    @property
    def head_dim(self) -> int:
        return self.k.shape[3]

    @property
    def batch(self) -> int:
        return self.block_table.shape[0]

    @property
    def capacity(self) -> int:
        """Positions that a row of the block table can hold."""
        return self.block_table.shape[1] * self.page

    def strides(self) -> tuple[np.int64, ...]:
        """Strides of block, token and head, of K then of V, as kernel arguments."""
        return (*outer_strides(self.k), *outer_strides(self.v))


def outer_strides(tensor: Tensor) -> tuple[np.int64, np.int64, np.int64]:
    """Strides of block, token and head in elements."""
    block, token, head, _ = tensor.stride()
    return np.int64(block), np.int64(token), np.int64(head)


def check_cache(k: Tensor, v: Tensor, block_table: Tensor, seq_lens: Tensor) -> PagedCache:
    """Types and shapes of a paged cache. Raises DtypeError, ShapeError or LayoutError."""
    for name, cache in {"k_cache": k, "v_cache": v}.items():
        check_dims(name, cache, CACHE_AXES)
        if cache.dtype not in _CODE_TYPES:
            raise DtypeError(
                "wrong dtype", where=name, found=cache.dtype, allowed="uint8 or float8_e4m3fn"
            )
        if cache.stride(3) != 1:
            raise LayoutError(
                "the elements of a head are not neighbours",
                where=name,
                found=f"stride {cache.stride(3)}",
                allowed="stride 1",
            )
    if k.shape != v.shape:
        raise ShapeError("v_cache is not shaped like k_cache", found=tuple(v.shape),
                         allowed=tuple(k.shape))  # fmt: skip
    check_dims("block_table", block_table, "batch max_blocks")
    check_dims("seq_lens", seq_lens, "batch")
    check_dtype("block_table", block_table, torch.int32)
    check_dtype("seq_lens", seq_lens, torch.int32)
    if block_table.stride(1) != 1:
        raise LayoutError("a row of the table has gaps", where="block_table",
                          found=f"stride {block_table.stride(1)}", allowed="stride 1")  # fmt: skip
    if seq_lens.shape[0] != block_table.shape[0] or not seq_lens.is_contiguous():
        raise ShapeError("one length a row of the table", where="seq_lens",
                         found=tuple(seq_lens.shape), allowed=(block_table.shape[0],))  # fmt: skip
    return PagedCache(k, v, block_table, seq_lens)


def check_scale(name: str, scale: float) -> float:
    """``scale`` as the FP32 number that the kernel uses. Raises SemanticsError."""
    with np.errstate(over="ignore"):  # infinity is refused below
        rounded = float(np.float32(scale))
    if not (math.isfinite(rounded) and rounded > 0.0):
        raise SemanticsError(
            "not a positive finite FP32 number", where=name, found=scale, allowed="above 0"
        )
    return rounded


def check_lengths(cache: PagedCache, lengths: Sequence[int] | None, room: int) -> None:
    """Check lengths that the host knows. Without them the device-side error word must do.

    Args:
        lengths: of each sequence, or None.
        room: positions that the output of one sequence holds.
    """
    if lengths is None:
        return
    if len(lengths) != cache.batch:
        raise ShapeError(
            "one length a sequence", where="lengths", found=len(lengths), allowed=cache.batch
        )
    for index, length in enumerate(lengths):
        if not 0 <= length <= cache.capacity:
            raise ShapeError(
                "a sequence does not fit its block table",
                where=f"lengths[{index}]",
                found=length,
                allowed=f"0 to {cache.capacity}",
            )
        if length > room:
            raise ShapeError(
                "a sequence does not fit the output",
                where=f"lengths[{index}]",
                found=length,
                allowed=f"0 to {room}",
            )
