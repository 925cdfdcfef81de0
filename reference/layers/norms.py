"""RMSNorm and LayerNorm in FP64, with the roundings of each convention by name."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from verify.reference.layers.accumulate import FP32_UNIT, repeats_roundings
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import (
    Array,
    as_float64,
    check_axis,
    check_choice,
    check_number,
    check_shape,
)
from verify.reference.layers.enclosure import (
    NEAR_SIGMAS,
    RMS_OF_ROUNDING,
    Enclosure,
    Noise,
)
from verify.reference.layers.grid import round_to

Cast = Literal["after-weight", "before-weight"]
CASTS = ("after-weight", "before-weight")
Where = Literal["working", "stored"]
PRECISIONS = ("working", "stored")
EPS_PLACES = ("inside-root", "outside-root")


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: float,
    unit_offset: bool = False,
    cast: Cast = "after-weight",
    store: str = "float64",
) -> Array:
    """``x / sqrt(mean(x^2) + eps) * weight`` along the last axis.

    Args:
        x: [..., hidden], the rounded activations that the kernel read.
        weight: [hidden], or None for ones.
        eps: added to the mean square, inside the root.
        unit_offset: multiply by ``1 + weight`` (Gemma).
        cast: where the result is rounded to ``store``: once, ``after-weight``; or ``before-weight``
            and again after (the Hugging Face Llama order).
        store: format of the output; ``float64`` applies no rounding at all.

    Returns:
        [..., hidden] float64, on the grid of ``store``.

    Raises:
        ArgumentError: shapes that do not fit, an eps that is negative or not finite, an unknown
            cast.
    """
    unstored = rms_norm_enclosure(
        x, weight, eps=eps, unit_offset=unit_offset, cast=cast, store=store
    )
    return round_to(unstored.mid, store)


def rms_norm_enclosure(
    x: Any,
    weight: Any = None,
    *,
    eps: float,
    unit_offset: bool = False,
    cast: Cast = "after-weight",
    offset_sum: Where = "working",
    reciprocal: Where = "working",
    eps_place: Literal["inside-root", "outside-root"] = "inside-root",
    store: str,
    arithmetic: Arithmetic | None = None,
) -> Enclosure:
    """What a kernel of this convention can hold just before its last rounding to ``store``.

    ``offset_sum="stored"`` rounds ``1 + weight`` to ``store``, ``reciprocal="stored"`` the
    reciprocal root: two conventions that shift a channel, or a row, as a whole. The rest as in
    :func:`rms_norm`; ``eps_place="outside-root"`` is a mistake seen in the field, kept so that it
    can be recognised.
    """
    arithmetic = arithmetic or Arithmetic()
    values, eps = as_float64(x, "x"), check_number("eps", eps, least=0.0)
    hidden = check_axis("x", values)
    check_choice("cast", cast, CASTS)
    check_choice("offset_sum", offset_sum, PRECISIONS)
    check_choice("reciprocal", reciprocal, PRECISIONS)
    check_choice("eps_place", eps_place, EPS_PLACES)
    factor = _weight(weight, hidden, unit_offset, store if offset_sum == "stored" else None)
    mean_square = _sum_of_positives(np.square(values), arithmetic).scaled(1.0 / hidden)
    root = _reciprocal_root(mean_square, eps, eps_place, arithmetic)
    if reciprocal == "stored":
        root = root.stored(store)
    normed = root.scaled(values).computed(FP32_UNIT)
    if cast == "before-weight":
        normed = normed.stored(store)
    return normed if factor is None else normed.times(factor).computed(FP32_UNIT)


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, eps: float, store: str = "float64"
) -> Array:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` along the last axis, var over n.

    Args:
        x: [..., hidden]; weight, bias: [hidden] or None; eps and store as in :func:`rms_norm`.

    Returns:
        [..., hidden] float64, on the grid of ``store``.
    """
    return round_to(layer_norm_enclosure(x, weight, bias, eps=eps, store=store).mid, store)


def layer_norm_enclosure(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float,
    cast: Cast = "after-weight",
    divisor: Literal["n", "n-1"] = "n",
    store: str,
    arithmetic: Arithmetic | None = None,
) -> Enclosure:
    """What a LayerNorm kernel can hold before its last rounding (see :func:`rms_norm_enclosure`).

    The budget covers the two-pass and Welford forms, and the affine form ``x * scale + shift``
    that multiplies the mean's size into the error. It does not cover ``E[x^2] - mean^2``.
    ``divisor="n-1"`` is a mistake, kept so that it can be recognised.
    """
    arithmetic = arithmetic or Arithmetic()
    values, eps = as_float64(x, "x"), check_number("eps", eps, least=0.0)
    hidden = check_axis("x", values, least=2 if divisor == "n-1" else 1)
    check_choice("cast", cast, CASTS)
    check_choice("divisor", divisor, ("n", "n-1"))
    factor = _weight(weight, hidden, False, None)
    mean = _mean(values, arithmetic)
    deviations = values - mean.mid
    centred = mean.scaled(-1.0).shifted(values)
    # (x - m) rounds once; the form x * scale + shift rounds at the size of |x| and |m|.
    size = np.abs(values) + np.abs(mean.mid)
    rounding = Noise(mean_abs=FP32_UNIT * size, rms=FP32_UNIT * size)
    centred = centred.plus(
        Enclosure.around(np.zeros(()), 2 * FP32_UNIT * size, 2 * FP32_UNIT * size, rounding)
    )
    squares = _sum_of_positives(np.square(deviations), arithmetic, mean)
    variance = squares.scaled(1.0 / (hidden if divisor == "n" else hidden - 1))
    root = _reciprocal_root(variance, eps, "inside-root", arithmetic)
    normed = root.times(centred).computed(FP32_UNIT)
    if cast == "before-weight":
        normed = normed.stored(store)
    if factor is not None:
        normed = normed.times(factor).computed(FP32_UNIT)
    if bias is None:
        return normed
    offset = as_float64(bias, "bias")
    check_shape("bias", offset, (hidden,), "[hidden]")
    return normed.shifted(offset).computed(FP32_UNIT)


def _weight(weight: Any, hidden: int, unit_offset: bool, store: str | None) -> Enclosure | None:
    """The factor of each channel; ``store`` rounds the sum ``1 + weight``."""
    if weight is None:
        return None
    values = as_float64(weight, "weight")
    check_shape("weight", values, (hidden,), "[hidden]")
    if not unit_offset:
        return Enclosure.exactly(values)
    total = Enclosure.exactly(1.0 + values)
    return total.stored(store) if store else total.computed(FP32_UNIT)


def _mean(values: Array, arithmetic: Arithmetic) -> Enclosure:
    """Mean along the last axis (kept), added in FP32: an error of at most (chain + 1) u mean|x|,
    with partial sums that grow no faster than evenly."""
    chain = arithmetic.chain_of(values.shape[-1])
    size = np.abs(values).mean(axis=-1, keepdims=True)
    radius = (chain + 1) * FP32_UNIT * 1.01 * size
    sigma = RMS_OF_ROUNDING * FP32_UNIT * (chain / 3 + 2) ** 0.5 * size
    repeats = repeats_roundings(values)
    sigma = np.where(repeats, radius / NEAR_SIGMAS, sigma)
    noise = Noise(common=sigma, drift=np.where(repeats, radius, 0.0))
    mean = values.mean(axis=-1, keepdims=True)
    return Enclosure.around(mean, radius, NEAR_SIGMAS * sigma, noise)


def _sum_of_positives(
    terms: Array, arithmetic: Arithmetic, mean: Enclosure | None = None
) -> Enclosure:
    """Sum along the last axis (kept) of squares that are rounded and added in FP32.

    A sum of positive terms has a relative error of at most (chain + 3) u, whatever the order; in
    the rounding model the partial sums grow evenly, so the deviation is
    0.425 u sqrt(chain / 3), shared by the row.

    With ``mean`` the terms are squared deviations from it. Two passes then add n (error of the
    mean)^2, since the deviations sum to zero; updating (Welford) multiplies the relative error by
    kappa = sqrt(1 + mean^2 / variance) instead (Chan, Golub, LeVeque, The American Statistician
    37(3), 1983, table 1). Both are covered.
    """
    count = terms.shape[-1]
    chain = arithmetic.chain_of(count)
    total = terms.sum(axis=-1, keepdims=True)
    scale, off_centre = total, np.zeros(())
    if mean is not None:
        scale = np.sqrt(total * (total + count * mean.mid**2))  # kappa * total
        off_centre = count * mean.radius**2
    radius = (chain + 3) * FP32_UNIT * 1.01 * scale + off_centre
    sigma = RMS_OF_ROUNDING * FP32_UNIT * (chain / 3 + 2) ** 0.5 * scale
    repeats = repeats_roundings(terms)
    sigma = np.where(repeats, radius / NEAR_SIGMAS, sigma)
    noise = Noise(common=sigma, drift=np.where(repeats, radius, off_centre))
    return Enclosure.around(total, radius, NEAR_SIGMAS * sigma + off_centre, noise)


def _reciprocal_root(
    mean_square: Enclosure, eps: float, eps_place: str, arithmetic: Arithmetic
) -> Enclosure:
    """``1 / sqrt(mean_square + eps)``, or ``1 / (sqrt(mean_square) + eps)``."""
    if eps_place == "inside-root":
        inside = mean_square.shifted(eps).computed(FP32_UNIT, 2)  # eps itself is rounded too
        with np.errstate(divide="ignore"):
            slope = -0.5 * inside.mid**-1.5
            root = inside.mapped(lambda t: np.maximum(t, 0.0) ** -0.5, slope)
    else:
        with np.errstate(divide="ignore"):
            slope = -0.5 * mean_square.mid**-0.5 / (np.sqrt(mean_square.mid) + eps) ** 2
            root = mean_square.mapped(lambda t: 1.0 / (np.sqrt(np.maximum(t, 0.0)) + eps), slope)
    return root.widened(arithmetic.function_error)
