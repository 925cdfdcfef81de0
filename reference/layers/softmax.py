"""Softmax along the last axis in FP64."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from verify.reference.layers.accumulate import repeats_roundings
from verify.reference.layers.arithmetic import FP32_UNIT, SMALLEST_NORMAL_FP32, Arithmetic
from verify.reference.layers.checks import Array, as_float64, check_axis, check_choice, check_number
from verify.reference.layers.enclosure import NEAR_SIGMAS, RMS_OF_ROUNDING, Enclosure, Noise
from verify.reference.layers.grid import round_to

SoftmaxCast = Literal["after-division", "before-division"]
SOFTMAX_CASTS = ("after-division", "before-division")


def softmax(x: Any, *, scale: float = 1.0, store: str = "float64") -> Array:
    """``exp(scale x - max) / sum`` along the last axis.

    Args:
        x: [..., n], the rounded scores that the kernel read; ``-inf`` masks an element, and a row
            with nothing but ``-inf`` is NaN, as in every framework.
        scale: multiplies the scores.
        store: format of the output; ``float64`` applies no rounding.

    Raises:
        ArgumentError: no last axis, or a scale that is not positive and finite.
    """
    return round_to(softmax_enclosure(x, scale=scale, store=store).mid, store)


def softmax_enclosure(
    x: Any,
    *,
    scale: float = 1.0,
    cast: SoftmaxCast = "after-division",
    store: str,
    arithmetic: Arithmetic | None = None,
) -> Enclosure:
    """What an FP32 softmax can hold before its last rounding to ``store``.

    ``cast="before-division"`` rounds the exponentials to ``store`` before they are summed and
    divided. The exponent ``scale x - max`` is off by u (|scale x| + |max| + |difference|), which
    is a relative error of the exponential; results below 2^-126 may be flushed to zero.
    """
    arithmetic = arithmetic or Arithmetic()
    check_choice("cast", cast, SOFTMAX_CASTS)
    scores = check_number("scale", scale, least=0.0, strict=True) * as_float64(x, "x")
    count = check_axis("x", scores)
    top = scores.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        below = scores - top
    exact = np.exp(below)
    reach = np.where(exact > 0.0, np.abs(below), 0.0)
    if scale != 1.0:
        reach = reach + np.where(exact > 0.0, np.abs(scores) + np.abs(top), 0.0)
    exponentials = (
        Enclosure.exactly(exact)
        .widened(arithmetic.function_error, exact * np.expm1(reach * FP32_UNIT * 1.01))
        .widened(0.0, SMALLEST_NORMAL_FP32)
    )
    if cast == "before-division":
        exponentials = exponentials.stored(store)
    mass = _mass(exponentials, arithmetic.chain_of(count))
    inverse = mass.mapped(lambda total: 1.0 / total, -1.0 / mass.mid**2)
    return exponentials.times(inverse).computed(FP32_UNIT, operations=2)


def _mass(terms: Enclosure, chain: int) -> Enclosure:
    """The sum of positive terms, added in FP32; the largest term is 1, so it is at least 1."""
    total = terms.mid.sum(axis=-1, keepdims=True)
    lo, hi = (end.sum(axis=-1, keepdims=True) for end in (terms.lo, terms.hi))
    near_lo, near_hi = (end.sum(axis=-1, keepdims=True) for end in (terms.near_lo, terms.near_hi))
    radius = (chain + 1) * FP32_UNIT * 1.01 * total
    sigma = RMS_OF_ROUNDING * FP32_UNIT * (chain / 3 + 2) ** 0.5 * total
    repeats = repeats_roundings(terms.mid)
    near = np.where(repeats, radius, np.minimum(NEAR_SIGMAS * sigma, radius))
    drift = terms.noise.drift.sum(axis=-1, keepdims=True) if terms.noise.drift.ndim else 0.0
    spread = np.sqrt(
        np.sum(np.broadcast_to(terms.noise.rms, terms.mid.shape) ** 2, -1, keepdims=True)
    )
    noise = Noise(common=np.hypot(sigma, spread), drift=drift + np.where(repeats, radius, 0.0))
    floor = np.finfo(np.float64).tiny
    return Enclosure(
        total,
        np.maximum(lo - radius, floor),
        hi + radius,
        np.maximum(near_lo - near, floor),
        near_hi + near,
        noise,
    )
