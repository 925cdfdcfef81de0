"""Launch the prefill kernels: one function a source file."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verify.gpu.arch import choose_variant
from verify.gpu.attention.contract import PrefillShape
from verify.gpu.launch import LoadedKernel, load_kernel
from verify.gpu.table import head_defines

# The fastest build of each convention first; the portable one runs on every chip.
_PREFERENCE = ("prefill_hopper", "prefill")
_BOX = 64  # tokens and dimensions of a box of a tensor map (prefill_hopper.cu)


def launch_prefill(
    name: str, shape: PrefillShape, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> LoadedKernel:
    """Launch variant ``name`` on checked tensors. Returns the kernel that runs."""
    index = q.device.index if q.device.index is not None else torch.cuda.current_device()
    chosen, arch = choose_variant(name, "prefill", _PREFERENCE, index)
    heads = head_defines(shape.query_heads, shape.key_heads)
    kernel = load_kernel(chosen, arch, index, heads)
    if kernel.build.variant.source == "prefill_hopper.cu":
        _launch_hopper(kernel, shape, q, k, v, out)
    else:
        _launch_portable(kernel, shape, q, k, v, out)
    return kernel


def _launch_portable(
    kernel: LoadedKernel, shape: PrefillShape, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> None:
    kernel.launch(
        "prefill",
        _grid(kernel, "prefill_tile", shape),
        *(tensor.data_ptr() for tensor in (q, k, v, out)),
        np.int32(shape.queries),
        np.int32(shape.keys),
    )


def _launch_hopper(
    kernel: LoadedKernel, shape: PrefillShape, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> None:
    kernel.launch(
        "prefill_hopper",
        _grid(kernel, "prefill_hopper_tile", shape),
        *(_tensor_map(tensor) for tensor in (q, k, v)),
        v.data_ptr(),
        out.data_ptr(),
        np.int32(shape.queries),
        np.int32(shape.keys),
    )


def _grid(kernel: LoadedKernel, table: str, shape: PrefillShape) -> tuple[int, int, int]:
    rows = _exported(kernel, table)[0]
    return (shape.query_heads * -(-shape.queries // rows), 1, 1)


@functools.lru_cache(maxsize=256)
def _exported(kernel: LoadedKernel, symbol: str) -> tuple[int, ...]:
    return kernel.build.ints(symbol)


def _tensor_map(tensor: Tensor) -> Any:
    """Tensor map over [tokens, heads, 256]: boxes of 64 x 1 x 64, 128-byte swizzle, zeros outside.

    Made anew for each call: it keeps a reference to the tensor, which a cache would keep alive.
    """
    from cuda.core import TensorMapDescriptorOptions
    from cuda.core._tensor_map import TensorMapL2Promotion, TensorMapSwizzle
    from cuda.core.utils import StridedMemoryView

    options = TensorMapDescriptorOptions(
        box_dim=(_BOX, 1, _BOX),
        swizzle=TensorMapSwizzle.SWIZZLE_128B,
        l2_promotion=TensorMapL2Promotion.L2_256B,
    )
    # -1: no order between streams is wanted, the kernel runs on torch's own.
    view = StridedMemoryView.from_dlpack(tensor.detach()[0], stream_ptr=-1)
    return view.as_tensor_map(options=options)
