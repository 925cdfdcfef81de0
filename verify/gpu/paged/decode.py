"""``decode``: one new token a sequence over a paged E4M3 cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from verify.gpu.arch import AUTO, choose_variant
from verify.gpu.checks import (
    check_aligned,
    check_contiguous,
    check_device,
    check_dims,
    check_dtype,
    check_out,
)
from verify.gpu.errors import LayoutError, OracleMissingError, ShapeError, WorkspaceError
from verify.gpu.launch import LoadedKernel, load_kernel
from verify.gpu.paged.cache import PagedCache, check_cache, check_lengths, check_scale
from verify.gpu.paged.faults import error_word
from verify.gpu.paged.turns import workspace_turn
from verify.gpu.route import CPU_ORACLE, RouteRecord, record
from verify.gpu.table import head_defines, head_groups

OPERATION = "decode_wave"
_PREFERENCE = ("decode_wave_mma", "decode_wave")  # fastest first
HEAD_DIM = 256
MOST_BATCH, MOST_KEYS, PAGE_STEP, PARTITION_STEP = 64, 262144, 16, 64
PARTIAL = HEAD_DIM + 2  # FP32 numbers of a partial result: sums, maximum, mass
MOST_PARTITIONS = 256

# Partition length by live length, first row whose `below` exceeds it (kernels/decode_wave.cu).
WAVES = ((12288, 64), (49152, 256), (98304, 512), (196608, 896), (2**31 - 1, 1664))


def partition_length(length: int) -> int:
    """Keys of a partition for a sequence of ``length`` keys."""
    return next(partition for below, partition in WAVES if length < below)


def most_partitions(capacity: int, partition: int = 0) -> int:
    """Partitions that any length up to ``capacity`` can need; ``partition`` 0 is the wave table."""
    if partition:
        return max(1, -(-capacity // partition))
    lengths = [min(capacity, below - 1) for below, _ in WAVES]
    return max(1, *(-(-length // partition_length(length)) for length in lengths))


def workspace_floats(batch: int, query_heads: int, capacity: int, partition: int = 0) -> int:
    """Size of the workspace of ``decode`` in FP32 numbers."""
    return batch * query_heads * most_partitions(capacity, partition) * PARTIAL


@dataclass(frozen=True, eq=False)
class _Call:
    cache: PagedCache
    q: Tensor
    out: Tensor
    scales: tuple[float, float, float]  # softmax, k, v
    partition: int
    variant: str


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    scale: float = 1.0 / 16.0,
    lengths: Sequence[int] | None = None,
    partition: int = 0,
    variant: str = AUTO,
    workspace: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attention of one query a sequence over its live keys.

    Args:
        q: [B, query heads, 256], float16, contiguous, 16-byte aligned; B up to 64.
        k_cache, v_cache: [blocks, page, key heads, 256], uint8 or float8_e4m3fn; outer strides
            multiples of 16, bases 16-byte aligned, page a multiple of 16.
        block_table: [B, max_blocks], int32. seq_lens: [B], int32, on the device.
        k_scale, v_scale: positive FP32 numbers; scale: of the scores before the softmax.
        lengths: seq_lens as the host knows them, to check them before the launch.
        partition: keys of a partition, a multiple of 64; 0 takes the table of kernels/decode_wave.cu
            by the length of each sequence.
        variant: a decode kernel by name, or ``"auto"``: the fastest one for the chip.
        workspace: float32, at least ``workspace_floats(B, query heads, capacity, partition)``;
            allocated for the call if None. Calls that bring one take turns on the device.
        out: [B, query heads, 256], float16; written and returned if given.

    Returns [B, query heads, 256], float16; zeros for a sequence of length 0. Capturable in a CUDA
    graph: lengths and table are read on the device.

    Raises KernelArgumentError for arguments outside the contract and WorkspaceError for scratch
    memory that is too small, before anything is launched.
    """
    result = torch.empty_like(q) if out is None else out
    torch.ops.verify.decode_wave(
        q, k_cache, v_cache, block_table, seq_lens, result, workspace, k_scale, v_scale, scale,
        partition, variant, None if lengths is None else list(lengths),
    )  # fmt: skip
    return result


@torch.library.custom_op("verify::decode_wave", mutates_args=("out", "workspace"))
def _decode_op(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    out: Tensor,
    workspace: Tensor | None,
    k_scale: float,
    v_scale: float,
    scale: float,
    partition: int,
    variant: str,
    lengths: list[int] | None,
) -> None:
    cache = check_cache(k_cache, v_cache, block_table, seq_lens)
    device = check_device(
        {"q": q, "k_cache": k_cache, "v_cache": v_cache, "block_table": block_table,
         "seq_lens": seq_lens, "out": out}
    )  # fmt: skip
    _check_query(cache, q, out)
    _check_paging(cache, partition)
    check_lengths(cache, lengths, MOST_KEYS)
    scales = tuple(
        check_scale(name, value)
        for name, value in (("scale", scale), ("k_scale", k_scale), ("v_scale", v_scale))
    )
    call = _Call(cache, q, out, (scales[0], scales[1], scales[2]), partition, variant)
    if device.type == "cpu":
        record(_run_oracle(call))
    else:
        record(_launch(call, workspace))


@_decode_op.register_fake
def _(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    out: Tensor,
    workspace: Tensor | None,
    k_scale: float,
    v_scale: float,
    scale: float,
    partition: int,
    variant: str,
    lengths: list[int] | None,
) -> None:
    return None


def _check_query(cache: PagedCache, q: Tensor, out: Tensor) -> None:
    check_dims("q", q, "batch heads head_dim")
    check_dtype("q", q, torch.float16)
    check_contiguous("q", q)
    check_aligned("q", q)
    batch, heads, dim = q.shape
    if batch != cache.batch or not 1 <= batch <= MOST_BATCH:
        raise ShapeError("wrong batch", where="q", found=batch,
                         allowed=f"{cache.batch}, as the block table, at most {MOST_BATCH}")  # fmt: skip
    if dim != HEAD_DIM or cache.head_dim != HEAD_DIM:
        raise ShapeError(
            "wrong head_dim", where="q, cache", found=(dim, cache.head_dim), allowed=HEAD_DIM
        )
    if (heads, cache.heads) not in head_groups():
        raise ShapeError(
            "head counts outside the table",
            where="query heads, key heads",
            found=(heads, cache.heads),
            allowed=", ".join(map(str, head_groups())),
        )
    check_out(out, tuple(q.shape), q.dtype)


def _check_paging(cache: PagedCache, partition: int) -> None:
    if cache.page % PAGE_STEP or cache.page < PAGE_STEP:
        raise ShapeError("wrong page size", where="k_cache", found=cache.page,
                         allowed=f"a multiple of {PAGE_STEP}")  # fmt: skip
    for name, tensor in {"k_cache": cache.k, "v_cache": cache.v}.items():
        check_aligned(name, tensor)
        if any(stride % 16 for stride in tensor.stride()[:3]):
            raise LayoutError("strides that the loads cannot follow", where=name,
                              found=tensor.stride(), allowed="multiples of 16")  # fmt: skip
    if partition < 0 or partition % PARTITION_STEP:
        raise ShapeError("wrong partition length", where="partition", found=partition,
                         allowed=f"0 or a multiple of {PARTITION_STEP}")  # fmt: skip
    capacity = min(cache.capacity, MOST_KEYS)
    if most_partitions(capacity, partition) > MOST_PARTITIONS:
        raise ShapeError(
            "too many partitions",
            where="partition",
            found=f"{most_partitions(capacity, partition)} for {capacity} keys",
            allowed=f"at most {MOST_PARTITIONS}",
        )


def _workspace(call: _Call, given: Tensor | None) -> Tensor:
    capacity = min(call.cache.capacity, MOST_KEYS)
    needed = workspace_floats(call.q.shape[0], call.q.shape[1], capacity, call.partition)
    if given is None:
        try:
            return torch.empty(needed, dtype=torch.float32, device=call.q.device)
        except torch.OutOfMemoryError as error:
            raise WorkspaceError(
                "no memory for the workspace", found=f"{needed * 4} bytes wanted"
            ) from error
    check_dtype("workspace", given, torch.float32)
    check_contiguous("workspace", given)
    if given.device != call.q.device or given.numel() < needed:
        raise WorkspaceError(
            "the workspace does not fit",
            where=given.device,
            found=f"{given.numel()} numbers",
            allowed=f"at least {needed} on {call.q.device}",
        )
    return given


def _launch(call: _Call, workspace: Tensor | None) -> RouteRecord:
    cache, q = call.cache, call.q
    index = torch.cuda.current_device() if q.device.index is None else q.device.index
    heads = head_defines(q.shape[1], cache.heads)
    name, arch = choose_variant(call.variant, OPERATION, _PREFERENCE, index)
    kernel = load_kernel(name, arch, index, heads)
    partials = _workspace(call, workspace)
    parts = most_partitions(min(cache.capacity, MOST_KEYS), call.partition)
    with nullcontext() if workspace is None else workspace_turn(q.device):
        _launch_partials(kernel, call, partials, parts)
        _launch_merge(kernel, call, partials, parts)
    shape = (("batch", q.shape[0]), ("query_heads", q.shape[1]), ("key_heads", cache.heads),
             ("page", cache.page), ("partition", call.partition))  # fmt: skip
    build = kernel.build
    mass = build.variant.mass
    return RouteRecord(OPERATION, name, str(q.device), shape, build.arch, build.build_id, mass)


def _launch_partials(kernel: LoadedKernel, call: _Call, partials: Tensor, parts: int) -> None:
    cache = call.cache
    # t in log2 units is s times this: one FP32 number, rounded once from float64.
    log2_scale = np.float32(call.scales[0] * call.scales[1] * math.log2(math.e))
    numbers = (cache.blocks, cache.page, cache.block_table.shape[1], cache.block_table.stride(0),
               call.partition)  # fmt: skip
    kernel.launch(
        "decode_wave_partials",
        (parts, cache.heads, call.q.shape[0]),
        *(t.data_ptr() for t in (call.q, cache.k, cache.v, cache.block_table, cache.seq_lens)),
        partials.data_ptr(),
        error_word(call.q.device).data_ptr(),
        log2_scale,
        *(np.int32(number) for number in numbers),
        *cache.strides(),
    )


def _launch_merge(kernel: LoadedKernel, call: _Call, partials: Tensor, parts: int) -> None:
    cache, slice_columns = call.cache, kernel.build.ints("decode_wave_sizes")[1]
    numbers = (parts, cache.page, cache.block_table.shape[1], call.partition)
    kernel.launch(
        "decode_wave_merge",
        (HEAD_DIM // slice_columns, call.q.shape[1], call.q.shape[0]),
        partials.data_ptr(),
        cache.seq_lens.data_ptr(),
        call.out.data_ptr(),
        np.float32(call.scales[2]),
        *(np.int32(number) for number in numbers),
    )


def _run_oracle(call: _Call) -> RouteRecord:
    """Replay of the declared roundings on the CPU, one sequence at a time."""
    try:
        from verify.reference.attention import AttentionInputs
        from verify.reference.attention.parts import gather_pages
        from verify.reference.replay.arithmetic import wave_decode
        from verify.reference.replay.attention import replay
    except ImportError as error:
        raise OracleMissingError(
            "the CPU oracle of decode is not installed", found=error, hint="use CUDA tensors"
        ) from error
    cache, (scale, k_scale, v_scale) = call.cache, call.scales
    lengths = [int(length) for length in cache.seq_lens]
    check_lengths(cache, lengths, MOST_KEYS)
    for b, length in enumerate(lengths):
        call.out[b].zero_()
        if length == 0:
            continue
        k, v = (
            gather_pages(t.view(torch.float8_e4m3fn), cache.block_table[b], length)[None].half()
            for t in (cache.k, cache.v)
        )
        inputs = AttentionInputs(
            call.q[b][None, None], k, v, causal=True, scale=scale, k_scale=k_scale, v_scale=v_scale
        )
        partition = call.partition or partition_length(length)
        output = replay(inputs, wave_decode(partition)).output
        call.out[b].copy_(torch.from_numpy(output).half())
    return RouteRecord(OPERATION, CPU_ORACLE, "cpu", mass="unrounded")
