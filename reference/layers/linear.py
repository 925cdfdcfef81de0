"""Linear layers (GEMM) in FP64, with the roundings of each convention by name."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from verify.errors import ArgumentError
from verify.reference.layers.arithmetic import FP32_UNIT, Arithmetic
from verify.reference.layers.checks import Array, as_float64, check_choice, check_shape
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to

Operands = Literal["as-stored", "tf32", "tf32-truncated", "bfloat16"]
OPERANDS: tuple[Operands, ...] = ("as-stored", "tf32", "tf32-truncated", "bfloat16")
BiasPlace = Literal["before-store", "after-store"]
BIAS_PLACES = ("before-store", "after-store")

_TF32_MANTISSA = 10


def linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    operands: Operands = "as-stored",
    bias_place: BiasPlace = "before-store",
    store: str = "float64",
) -> Array:
    """``x @ weight.T + bias``.

    Args:
        x: [..., in], the rounded activations that the kernel read.
        weight: [out, in]; bias: [out] or None.
        operands: what a product is taken of: the stored values; both rounded to ``tf32`` (10
            fraction bits, ties away), to TF32 by dropping bits, or to ``bfloat16``.
        bias_place: added to the FP32 sum, or to the sum already rounded to ``store``.
        store: format of the output; ``float64`` applies no rounding at all.

    Returns:
        [..., out] float64, on the grid of ``store``.

    Raises:
        ArgumentError: shapes that do not fit, or an unknown convention.
    """
    rows, w, offset = _operands(x, weight, bias, operands)
    check_choice("bias_place", bias_place, BIAS_PLACES)
    product = rows.reshape(-1, rows.shape[-1]) @ w.T
    if offset is not None:
        product = (product if bias_place == "before-store" else round_to(product, store)) + offset
    return round_to(product, store).reshape(*rows.shape[:-1], w.shape[0])


def linear_enclosure(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    operands: Operands = "as-stored",
    bias_place: BiasPlace = "before-store",
    store: str,
    arithmetic: Arithmetic | None = None,
) -> Enclosure:
    """What the kernel can hold just before its last rounding: [rows, out], rows = all leading
    axes of ``x``. Arguments as in :func:`linear`."""
    arithmetic = arithmetic or Arithmetic()
    rows, w, offset = _operands(x, weight, bias, operands)
    check_choice("bias_place", bias_place, BIAS_PLACES)
    flat = rows.reshape(-1, rows.shape[-1])
    if offset is None:
        return arithmetic.accumulate.matmul(flat, w)
    if bias_place == "before-store":
        return arithmetic.accumulate.matmul(flat, w, offset).computed(FP32_UNIT, operations=2)
    product = arithmetic.accumulate.matmul(flat, w).stored(store)
    return product.shifted(offset).computed(FP32_UNIT)


def _operands(x: Any, weight: Any, bias: Any, operands: str) -> tuple[Array, Array, Array | None]:
    check_choice("operands", operands, OPERANDS)
    rows, w = as_float64(x, "x"), as_float64(weight, "weight")
    if w.ndim != 2 or rows.ndim < 1 or rows.shape[-1] != w.shape[1]:
        raise ArgumentError(
            "shapes do not fit together",
            where="x, weight",
            found=f"shapes {rows.shape} and {w.shape}",
            allowed="x [..., in] and weight [out, in]",
        )
    offset = None if bias is None else as_float64(bias, "bias")
    if offset is not None:
        check_shape("bias", offset, (w.shape[0],), "[out]")
    return _convert(rows, operands), _convert(w, operands), offset


def _convert(values: Array, operands: str) -> Array:
    if operands == "as-stored":
        return values
    if operands == "bfloat16":
        return round_to(values, "bfloat16")
    return round_tf32(values, truncate=operands == "tf32-truncated")


def round_tf32(values: Array, *, truncate: bool = False) -> Array:
    """FP32 values with 10 fraction bits kept, to nearest (ties away from zero) or toward zero.

    The first is PTX ``cvt.rna.tf32.f32``, the second what a tensor core does to bits that it does
    not read. TF32 has the exponent range of FP32. Subnormals keep the absolute quantum of FP32's smallest
    normal number. Source: NVIDIA A100 white paper, "TF32 Tensor Cores".
    """
    exponent = np.maximum(np.frexp(values)[1] - 1, -126)
    quantum = np.ldexp(1.0, exponent - _TF32_MANTISSA)
    with np.errstate(invalid="ignore"):
        steps = values / quantum
        # Exact: a float32 value has at most 24 bits above its own quantum.
        half = 0.0 if truncate else np.copysign(0.5, steps)
        rounded: Array = np.trunc(steps + half) * quantum
    return np.where(np.isfinite(values), rounded, values)
