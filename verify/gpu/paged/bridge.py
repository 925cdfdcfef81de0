"""``e4m3_to_fp16``: a paged E4M3 cache to contiguous FP16, exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from verify.gpu.arch import device_arch
from verify.gpu.checks import check_device, check_dims, check_dtype
from verify.gpu.errors import LayoutError, ShapeError
from verify.gpu.launch import load_kernel
from verify.gpu.paged.cache import (
    CACHE_AXES,
    PagedCache,
    check_cache,
    check_lengths,
    check_scale,
    outer_strides,
)
from verify.gpu.paged.faults import error_word
from verify.gpu.route import CPU_ORACLE, RouteRecord, record

OPERATION = "e4m3_bridge"
TAIL_STEP = 16  # lengths are filled with zeros to a multiple of this
_WIDE = 8  # elements that the wide path moves at once


def e4m3_to_fp16(
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    k_out: Tensor,
    v_out: Tensor,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    lengths: Sequence[int] | None = None,
) -> None:
    """Write ``fp16(float(code) * scale)`` of every live position to ``k_out`` and ``v_out``.

    Args:
        k_cache, v_cache: [blocks, page, heads, head_dim], uint8 or float8_e4m3fn, strides of their
            own, last one 1.
        block_table: [B, max_blocks], int32. seq_lens: [B], int32, on the device.
        k_out, v_out: [B * n, out_page, heads, head_dim], float16, last stride 1: position p of
            sequence b goes to block b * n + p // out_page.
        k_scale, v_scale: positive FP32 numbers.
        lengths: seq_lens as the host knows them, to check them before the launch. Without them a
            fault sets the device's error word (``check_device_errors``) and is left out.

    Positions up to the next multiple of 16 become +0, the rest of the outputs is not touched.
    0x7F and 0xFF become the FP16 NaN 0x7FFF. Capturable in a CUDA graph; nothing is allocated.

    Raises KernelArgumentError for arguments outside the contract, before anything is launched.
    """
    torch.ops.verify.e4m3_bridge(
        k_cache, v_cache, block_table, seq_lens, k_out, v_out, k_scale, v_scale,
        None if lengths is None else list(lengths),
    )  # fmt: skip


@torch.library.custom_op("verify::e4m3_bridge", mutates_args=("k_out", "v_out"))
def _bridge_op(
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    k_out: Tensor,
    v_out: Tensor,
    k_scale: float,
    v_scale: float,
    lengths: list[int] | None,
) -> None:
    cache = check_cache(k_cache, v_cache, block_table, seq_lens)
    device = check_device(
        {"k_cache": k_cache, "v_cache": v_cache, "block_table": block_table, "seq_lens": seq_lens,
         "k_out": k_out, "v_out": v_out}
    )  # fmt: skip
    out_blocks = _check_outputs(cache, k_out, v_out)
    check_lengths(cache, lengths, out_blocks * k_out.shape[1])
    scales = check_scale("k_scale", k_scale), check_scale("v_scale", v_scale)
    if device.type == "cpu":
        record(_run_oracle(cache, k_out, v_out, out_blocks, scales))
    else:
        record(_launch(cache, k_out, v_out, out_blocks, scales))


@_bridge_op.register_fake
def _(
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    k_out: Tensor,
    v_out: Tensor,
    k_scale: float,
    v_scale: float,
    lengths: list[int] | None,
) -> None:
    return None


def _check_outputs(cache: PagedCache, k_out: Tensor, v_out: Tensor) -> int:
    """Blocks of output that each sequence owns."""
    for name, out in {"k_out": k_out, "v_out": v_out}.items():
        check_dims(name, out, CACHE_AXES)
        check_dtype(name, out, torch.float16)
        if out.shape[2:] != cache.k.shape[2:] or out.shape[0] % cache.batch or 0 in out.shape:
            raise ShapeError(
                "the output does not match the cache",
                where=name,
                found=tuple(out.shape),
                allowed=f"[a multiple of {cache.batch}, out_page, {cache.heads}, {cache.head_dim}]",
            )
        if out.stride(3) != 1:
            raise LayoutError("the elements of a head are not neighbours", where=name,
                              found=f"stride {out.stride(3)}", allowed="stride 1")  # fmt: skip
    if k_out.shape != v_out.shape:
        raise ShapeError("v_out is not shaped like k_out", found=tuple(v_out.shape),
                         allowed=tuple(k_out.shape))  # fmt: skip
    return k_out.shape[0] // cache.batch


def _is_wide(cache: PagedCache, k_out: Tensor, v_out: Tensor) -> bool:
    """True when 8 elements can be moved at once: dimensions, strides and bases allow it."""
    tensors = (cache.k, cache.v, k_out, v_out)
    steps = [cache.head_dim, *(stride for t in tensors for stride in t.stride()[:3])]
    return all(step % _WIDE == 0 for step in steps) and all(t.data_ptr() % 16 == 0 for t in tensors)


def _launch(
    cache: PagedCache, k_out: Tensor, v_out: Tensor, out_blocks: int, scales: tuple[float, float]
) -> RouteRecord:
    device = k_out.device
    index = torch.cuda.current_device() if device.index is None else device.index
    kernel = load_kernel(OPERATION, device_arch(index), index)
    wide = _is_wide(cache, k_out, v_out)
    entry = "e4m3_bridge_wide" if wide else "e4m3_bridge_narrow"
    vector, positions = kernel.build.ints("e4m3_bridge_tile") if wide else (1, 1)
    elements = out_blocks * k_out.shape[1] * cache.heads * cache.head_dim // vector
    grid = (-(-elements // (kernel.build.entry(entry).threads * positions)), cache.batch, 1)
    kernel.launch(
        entry,
        grid,
        *(t.data_ptr() for t in (cache.k, cache.v, cache.block_table, cache.seq_lens)),
        *(t.data_ptr() for t in (k_out, v_out, error_word(device))),
        *(np.float32(scale) for scale in scales),
        *(
            np.int32(number)
            for number in (
                cache.heads, cache.head_dim, cache.blocks, cache.page,
                cache.block_table.shape[1], out_blocks, k_out.shape[1], cache.block_table.stride(0),
            )
        ),
        *cache.strides(),
        *outer_strides(k_out),
        *outer_strides(v_out),
    )  # fmt: skip
    shape = (("batch", cache.batch), ("page", cache.page), ("out_page", k_out.shape[1]),
             ("heads", cache.heads), ("head_dim", cache.head_dim), ("wide", int(wide)))  # fmt: skip
    build = kernel.build
    return RouteRecord(OPERATION, OPERATION, str(device), shape, build.arch, build.build_id)


def _run_oracle(
    cache: PagedCache, k_out: Tensor, v_out: Tensor, out_blocks: int, scales: tuple[float, float]
) -> RouteRecord:
    """The same bytes on the CPU: torch's own E4M3 decoder, one FP32 product, one rounding."""
    lengths = [int(length) for length in cache.seq_lens]
    check_lengths(cache, lengths, out_blocks * k_out.shape[1])
    for codes, out, scale in ((cache.k, k_out, scales[0]), (cache.v, v_out, scales[1])):
        for b, length in enumerate(lengths):
            position = torch.arange(length)
            pages = cache.block_table[b].long()[position // cache.page]
            live = codes[pages, position % cache.page].view(torch.float8_e4m3fn).float()
            halves = (live * torch.tensor(scale, dtype=torch.float32)).half().view(torch.int16)
            halves.masked_fill_(live.isnan(), 0x7FFF)
            end = torch.arange(-(-length // TAIL_STEP) * TAIL_STEP)
            padded = torch.zeros((len(end), *halves.shape[1:]), dtype=torch.int16)
            padded[:length] = halves
            target = b * out_blocks + end // out.shape[1], end % out.shape[1]
            out[target] = padded.view(torch.float16)
    return RouteRecord(OPERATION, CPU_ORACLE, "cpu")
