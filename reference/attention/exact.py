"""Attention at any precision, from the bits of the inputs, for chosen rows.

Dot products are exact: inputs become integers on a common binary grid, and Python integers do not
round. Weights are rounded once to ``precision`` fraction bits; sums of weight times value are
exact again. It shares nothing with the FP64 path but the description of the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.reference.attention.inputs import (
    AttentionInputs,
    Row,
    RowGroup,
    check_rows,
    row_groups,
)

_CHUNK = 4096
_FP16_GRID = 24  # every FP16 and FP8 number is a multiple of 2^-24

Integers = NDArray[np.object_]


@dataclass(frozen=True)
class ExactAttention:
    """output[row][value_dim] and lse[row] as mpf at ``precision`` bits; None for a NaN row."""

    rows: tuple[Row, ...]
    output: list[list[Any]]
    lse: list[Any]
    precision: int


def attend_exact(
    inputs: AttentionInputs, rows: Sequence[Row] | None = None, *, precision: int = 160
) -> ExactAttention:
    """Attention of the chosen rows with weights of ``precision`` fraction bits.

    Each weight is within 2^-precision of the truth relative to the largest one, so the error of
    output is below 2^(2 - precision) * keys * max|v|. About 20 s a row at 262144 keys of 256.

    Raises:
        ArgumentError: a row outside of q, a visible key or value that is not finite, precision
            below 64.
    """
    if precision < 64:
        raise ArgumentError(
            "precision is too low for a reference", where="precision", found=precision,
            allowed="64 bits or more",
        )  # fmt: skip
    chosen = check_rows(inputs, rows)
    output: list[list[Any]] = [[] for _ in chosen]
    lse: list[Any] = [None] * len(chosen)
    with mpmath.workprec(precision + 32):
        for group in row_groups(inputs, chosen, limit=1):
            place = group.index[0]
            output[place], lse[place] = _attend_row(group, inputs, precision)
    return ExactAttention(tuple(chosen), output, lse, precision)


def _attend_row(group: RowGroup, inputs: AttentionInputs, precision: int) -> tuple[list[Any], Any]:
    first, last = group.span
    width = group.v.shape[1]
    scale = mpmath.mpf(inputs.softmax_scale) * mpmath.mpf(inputs.k_scale)
    x = [score for low in range(first, last, _CHUNK)
         for score in _exact_scores(group, low, min(low + _CHUNK, last), scale)]  # fmt: skip
    sink = [] if group.sink is None else [mpmath.mpf(float(group.sink[0]))]
    if not x and not sink:
        return [mpmath.mpf(0)] * width, mpmath.mpf("-inf")
    top = max(x + sink)
    weights = [_fixed(mpmath.exp(score - top), precision) for score in x + sink]
    total = sum(weights)
    sums: Integers = np.zeros(width, dtype=object)
    grid = _grid(group.v[first:last]) if last > first else 0
    for low in range(first, last, _CHUNK):
        high = min(low + _CHUNK, last)
        p = np.array(weights[low - first : high - first], dtype=object)
        sums = sums + p @ _integers(group.v[low:high], grid)
    v_scale = mpmath.mpf(inputs.v_scale)
    output = [mpmath.ldexp(mpmath.mpf(int(s)) / total, -grid) * v_scale for s in sums]
    return output, top + mpmath.log(mpmath.ldexp(mpmath.mpf(total), -precision))


def _exact_scores(group: RowGroup, low: int, high: int, scale: Any) -> list[Any]:
    q_grid, k_grid = _grid(group.q), _grid(group.k[low:high])
    dots = _integers(group.k[low:high], k_grid) @ _integers(group.q[0], q_grid)
    x = [mpmath.ldexp(mpmath.mpf(int(dot)) * scale, -(q_grid + k_grid)) for dot in dots]
    if group.softcap is None:
        return x
    cap = mpmath.mpf(group.softcap)
    return [mpmath.tanh(score / cap) * cap for score in x]


def _fixed(value: Any, precision: int) -> int:
    return int(mpmath.floor(mpmath.ldexp(value, precision) + mpmath.mpf(0.5)))


def _grid(tensor: torch.Tensor) -> int:
    """The number of fraction bits that holds every element exactly."""
    if tensor.dtype.itemsize <= 2 and tensor.dtype != torch.bfloat16:
        return _FP16_GRID
    bits = 0
    for low in range(0, tensor.shape[0], _CHUNK):
        mantissa, exponent = np.frexp(_finite(tensor[low : low + _CHUNK]))
        used = exponent[mantissa != 0]
        bits = max(bits, 53 - int(used.min()) if used.size else 0)
    return bits


def _integers(tensor: torch.Tensor, grid: int) -> Integers:
    """Elements times 2^grid, as Python integers."""
    x = _finite(tensor)
    if grid == _FP16_GRID and (not x.size or float(np.abs(x).max()) < 2.0**38):
        return np.ldexp(x, grid).astype(np.int64).astype(object)
    mantissa, exponent = np.frexp(x)
    whole = np.ldexp(mantissa, 53).astype(np.int64).astype(object)
    shift = (exponent.astype(np.int64) - 53 + grid).astype(object)
    scaled: Integers = np.frompyfunc(_shift, 2, 1)(whole, shift)
    return scaled


def _shift(whole: int, by: int) -> int:
    return whole << by if by >= 0 else whole >> -by  # only zeros are shifted out


def _finite(tensor: torch.Tensor) -> NDArray[np.float64]:
    x: NDArray[np.float64] = tensor.detach().double().cpu().numpy()
    if not np.isfinite(x).all():
        raise ArgumentError(
            "a visible key, value or query is not finite", where="q, k, v",
            allowed="finite numbers; the FP64 reference says which rows become NaN",
        )  # fmt: skip
    return x
