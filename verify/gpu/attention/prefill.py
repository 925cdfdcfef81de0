"""``prefill``: causal attention of a chunk of queries over a long context."""

from __future__ import annotations

import torch
from torch import Tensor

from verify.gpu.arch import AUTO
from verify.gpu.attention.contract import (
    SCALE,
    PrefillShape,
    check_layout,
    check_semantics,
    check_shape,
)
from verify.gpu.attention.fallback import (
    FP64,
    RAISE,
    attend_fp64,
    attend_oracle,
    attend_sdpa,
    check_fallback,
)
from verify.gpu.attention.kernels import launch_prefill
from verify.gpu.checks import check_out
from verify.gpu.errors import ArchitectureError, CompileError, KernelArgumentError, KernelError
from verify.gpu.route import CPU_ORACLE, RouteRecord, record
from verify.gpu.table import get_variant

OPERATION = "prefill"


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float = SCALE,
    causal: bool = True,
    variant: str = AUTO,
    fallback: str = RAISE,
    out: Tensor | None = None,
) -> Tensor:
    """Attention of Q queries at the end of KV keys: row i sees the keys <= KV - Q + i.

    Args:
        q: [1, Q, query heads, 256], float16, contiguous, 16-byte aligned; Q from 64 to 8192 and a
            multiple of 64 (see ``pad_queries``).
        k, v: [1, KV, key heads, 256], likewise; Q < KV <= 262144, KV a multiple of 32. The head
            counts are those of ``verify kernels list``.
        scale: of the scores before the softmax; exactly 1/16.
        causal: True.
        variant: a prefill kernel by name, or ``"auto"``: the fastest one with FP16 probabilities.
        fallback: ``"raise"``, or the route that answers what the kernel does not admit:
            ``"sdpa"`` (torch) or ``"fp64"`` (float64 by definition). The route record says so.
        out: [1, Q, query heads, 256], float16, contiguous; written and returned if given.

    Returns [1, Q, query heads, 256], float16. On CPU tensors the replay oracle answers, which is
    exact in every rounding and slow; its route is ``"cpu_replay_oracle"``.

    Raises KernelArgumentError (DeviceError, DtypeError, ShapeError, LayoutError, SemanticsError)
    for arguments outside the contract, ArchitectureError or CompileError where no kernel can be
    had, all before anything is launched.

    >>> q = torch.randn(1, 64, 6, 256, device="cuda", dtype=torch.float16)
    >>> k, v = torch.randn(2, 1, 4096, 1, 256, device="cuda", dtype=torch.float16)
    >>> verify.gpu.prefill(q, k, v).shape
    torch.Size([1, 64, 6, 256])
    """
    if out is None:
        result: Tensor = torch.ops.verify.prefill(q, k, v, scale, causal, variant, fallback)
        return result
    torch.ops.verify.prefill_out(q, k, v, scale, causal, variant, fallback, out)
    return out


@torch.library.custom_op("verify::prefill", mutates_args=())
def _prefill_op(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, variant: str, fallback: str
) -> Tensor:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    answer(q, k, v, scale, causal, variant, fallback, out)
    return out


@_prefill_op.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, variant: str, fallback: str
) -> Tensor:
    if fallback == RAISE:
        check_semantics(scale, causal)
        check_shape(q, k, v)
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@torch.library.custom_op("verify::prefill_out", mutates_args=("out",))
def _prefill_out_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    variant: str,
    fallback: str,
    out: Tensor,
) -> None:
    check_out(out, tuple(q.shape), q.dtype)
    answer(q, k, v, scale, causal, variant, fallback, out)


@_prefill_out_op.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    variant: str,
    fallback: str,
    out: Tensor,
) -> None:
    return None


def answer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    variant: str,
    fallback: str,
    out: Tensor,
) -> None:
    """Write the result into ``out`` and record the route that ran."""
    check_fallback(fallback)
    try:
        check_semantics(scale, causal)
        shape = check_shape(q, k, v)
        check_layout(q, k, v)
        route = _run(variant, shape, q, k, v, out)
    except (KernelArgumentError, ArchitectureError, CompileError) as error:
        if fallback == RAISE:
            raise
        route = _run_fallback(fallback, error, q, k, v, scale, causal, out)
    record(route)


def _run(
    variant: str, shape: PrefillShape, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> RouteRecord:
    if q.device.type == "cpu":
        wanted = "prefill" if variant == AUTO else variant
        mass = get_variant(wanted).mass
        out.copy_(attend_oracle(q, k, v, split_p=wanted.endswith("split_p")))
        return RouteRecord(OPERATION, CPU_ORACLE, "cpu", shape.as_pairs(), mass=mass)
    kernel = launch_prefill(variant, shape, q, k, v, out)
    build = kernel.build
    return RouteRecord(
        operation=OPERATION,
        route=build.variant.name,
        device=str(q.device),
        shape=shape.as_pairs(),
        arch=build.arch,
        build_id=build.build_id,
        mass=build.variant.mass,
    )


def _run_fallback(
    name: str,
    error: KernelError,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    out: Tensor,
) -> RouteRecord:
    attend = attend_fp64 if name == FP64 else attend_sdpa
    out.copy_(attend(q, k, v, scale, causal))
    reason = "; ".join(filter(None, (error.what, error.where, error.found)))
    return RouteRecord(OPERATION, name, str(q.device), reason=reason)
