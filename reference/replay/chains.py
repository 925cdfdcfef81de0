"""Matrix products as a declared chain accumulates them, on float32 values."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.formats import decode, encode
from verify.reference.replay.arithmetic import Chain
from verify.reference.tensor_core import matrix_product
from verify.reference.tensor_core.software_mma import add_once

Float32 = NDArray[np.float32]


def round_to(values: NDArray[Any], name: str) -> Float32:
    """float32 ``values`` rounded once, to nearest even, to a format that float32 contains."""
    if name == "float32":
        return values.astype(np.float32)
    with np.errstate(over="ignore"):
        if name == "float16":
            return values.astype(np.float16).astype(np.float32)
        rounded: Float32 = decode(encode(values.astype(np.float64), name), name).astype(np.float32)
    return rounded


def operand_words(values: NDArray[Any], name: str, where: str) -> NDArray[Any]:
    """Words of numbers that must already be on the grid of ``name``.

    Raises:
        ArgumentError: one of them is not.
    """
    as_float16 = name == "float16"
    with np.errstate(over="ignore"):
        words = (
            values.astype(np.float16).view(np.uint16)
            if as_float16
            else encode(values.astype(np.float64), name)
        )
    back = words.view(np.float16) if as_float16 else decode(words, name)
    if not np.array_equal(back, values, equal_nan=True):
        raise ArgumentError(
            "an operand of the product is not on its grid", where=where,
            found="values that change when rounded", allowed=f"numbers of {name}",
            hint="give the same rounded tensors that the kernel saw",
        )  # fmt: skip
    return words


def multiply(
    a: NDArray[Any], b: NDArray[Any], c: Float32 | None, chain: Chain,
    operands: Literal["float16", "bfloat16"],
) -> Float32:  # fmt: skip
    """``c + a @ b``.

    Args:
        a: [m, k], b: [k, n]: words of ``operands`` for a tensor core, values for ``fma``.
        c: [m, n], zeros if None; on the grid of ``chain.output``.
    """
    if chain.kind == "fma":
        return _multiply_fma(a, b, c)
    start = None
    if c is not None:
        start = c.astype(chain.output).view(np.uint16 if chain.output == "float16" else np.uint32)
    words = matrix_product(a, b, start, chain.unit(operands))
    result: Float32 = words.view(np.dtype(chain.output)).astype(np.float32)
    return result


def _multiply_fma(a: NDArray[Any], b: NDArray[Any], c: Float32 | None) -> Float32:
    """Products of float32 and 16-bit numbers have 35 bits: exact in float64."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32) if c is None else c
    x, y = a.astype(np.float64), b.astype(np.float64)
    for k in range(a.shape[1]):
        total = add_once(x[:, k, None] * y[k], total.astype(np.float64))
    return total
