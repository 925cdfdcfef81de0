"""SiLU, GELU (exact and tanh) and the gated products SwiGLU and GeGLU in FP64."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from scipy.special import erfc

from verify.reference.layers.arithmetic import FP32_UNIT, Arithmetic
from verify.reference.layers.checks import Array, as_float64, check_choice, check_shape
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to

Function = Literal["silu", "gelu", "gelu-tanh"]
FUNCTIONS: tuple[Function, ...] = ("silu", "gelu", "gelu-tanh")
GateCast = Literal["after-product", "before-product"]
GATE_CASTS = ("after-product", "before-product")

Sigmoid = Literal["quotient", "centred"]
SIGMOIDS = ("quotient", "centred")

# x / (1 + exp(-x)) for x < -88: FP32 exp overflows and the quotient is -0; |x| exp(x) < 2^-120.
_SILU_UNDERFLOW = 2.0**-120
# 1/2 + x p(x^2) / q(x^2), p of degree 4 and q of degree 5 by Horner with terms of one sign: two
# roundings a step, one each of the square, x, the quotient and the sum, and two for the fit, on a term of
# at most 1/2. A sweep of ONNX Runtime's over [-30, 30] gives 2.8 units.
_CENTRED_ROUNDINGS = (2 * 9 + 4 + 2) / 2
_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
# The tanh approximation of GELU: Hendrycks, Gimpel, arXiv 1606.08415, section 2.
_CUBIC = 0.044715


def activation(x: Any, *, function: Function, store: str = "float64") -> Array:
    """SiLU ``x sigmoid(x)``, GELU ``x Phi(x)``, or GELU's tanh approximation, per element.

    Args:
        x: any shape, the rounded values that the kernel read.
        function: ``silu``, ``gelu`` or ``gelu-tanh``.
        store: format of the output; ``float64`` applies no rounding.

    Raises:
        ArgumentError: an unknown function.
    """
    check_choice("function", function, FUNCTIONS)
    return round_to(_EXACT[function](as_float64(x, "x")), store)


def activation_enclosure(
    x: Any,
    *,
    function: Function,
    store: str,
    arithmetic: Arithmetic | None = None,
    sigmoid: Sigmoid = "quotient",
) -> Enclosure:
    """What an FP32 evaluation of the function can hold before it is rounded to ``store``.

    The budget is that of the usual formulas: ``x / (1 + exp(-x))``,
    ``x/2 * (1 + erf(x / sqrt 2))`` and ``x/2 * (1 + tanh(...))``. The last two cancel for
    negative x, where the error is one of ``|x|`` and not of the result. So does a SiLU whose
    ``sigmoid`` is ``centred``: 1/2 plus an odd rational or tanh (ONNX Runtime, mlas, logistic.cpp;
    it also stops at |x| = 18, where the tail is below a unit of FP32).
    """
    check_choice("function", function, FUNCTIONS)
    check_choice("sigmoid", sigmoid, SIGMOIDS)
    arithmetic = arithmetic or Arithmetic()
    values, error = as_float64(x, "x"), arithmetic.function_error
    exact = _EXACT[function](values)
    with np.errstate(over="ignore", invalid="ignore"):
        if function == "silu" and sigmoid == "centred":
            absolute = np.abs(values) * _CENTRED_ROUNDINGS * FP32_UNIT
            return Enclosure.exactly(exact).widened(0.0, absolute).computed(FP32_UNIT)
        if function == "silu":
            # exp, 1 + exp, division (and one more for x * sigmoid(x)).
            return (
                Enclosure.exactly(exact)
                .widened(error, _SILU_UNDERFLOW)
                .computed(FP32_UNIT, operations=3)
            )
        inner = _inner_slope(values, function)
        if function == "gelu":
            error = arithmetic.erf_error
        # The bracket 1 + f: f has `error`, its argument up to 6 roundings, the sum one.
        bracket = error + inner * 6 * FP32_UNIT + FP32_UNIT
        absolute = np.abs(values) / 2 * bracket
    return Enclosure.exactly(exact).widened(0.0, absolute).computed(FP32_UNIT, operations=2)


def gated(
    gate: Any,
    up: Any,
    *,
    function: Function = "silu",
    cast: GateCast = "after-product",
    store: str = "float64",
) -> Array:
    """``f(gate) * up``: SwiGLU for silu, GeGLU for the GELUs.

    Args:
        gate, up: one shape, the rounded values that the kernel read.
        cast: rounded once, ``after-product`` (fused), or also ``before-product`` (unfused: the
            activation is stored first).
        store: format of the output, and of the stored activation.

    Raises:
        ArgumentError: shapes that differ, an unknown function or cast.
    """
    return round_to(gated_enclosure(gate, up, function=function, cast=cast, store=store).mid, store)


def gated_enclosure(
    gate: Any,
    up: Any,
    *,
    function: Function = "silu",
    cast: GateCast = "after-product",
    store: str,
    arithmetic: Arithmetic | None = None,
    sigmoid: Sigmoid = "quotient",
) -> Enclosure:
    """What the kernel can hold before its last rounding to ``store`` (see :func:`gated`)."""
    check_choice("cast", cast, GATE_CASTS)
    values, partner = as_float64(gate, "gate"), as_float64(up, "up")
    check_shape("up", partner, values.shape, "the shape of gate")
    active = activation_enclosure(
        values, function=function, store=store, arithmetic=arithmetic, sigmoid=sigmoid
    )
    if cast == "before-product":
        active = active.stored(store)
    return active.scaled(partner).computed(FP32_UNIT)


def _silu(x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        small = np.exp(-np.abs(x))
        sigmoid = np.where(x >= 0, 1.0, small) / (1.0 + small)
        return np.where(np.isneginf(x), np.nan, x * sigmoid)


def _gelu(x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        result: Array = 0.5 * x * erfc(-_SQRT_HALF * x)
    return result


def _gelu_tanh(x: Array) -> Array:
    """``x/2 (1 + tanh z) = x sigmoid(2 z)``: the second form does not cancel."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = _SQRT_2_OVER_PI * (x + _CUBIC * x**3)
        result: Array = x / (1.0 + np.exp(-2.0 * z))
    return result


_EXACT = {"silu": _silu, "gelu": _gelu, "gelu-tanh": _gelu_tanh}


def _inner_slope(x: Array, function: str) -> Array:
    """|z f'(z)|: what a relative error of the inner argument z does to f = erf or tanh."""
    if function == "gelu":
        z = _SQRT_HALF * x
        slope: Array = np.abs(z) * (2.0 / math.sqrt(math.pi)) * np.exp(-z * z)
        return slope
    z = np.abs(_SQRT_2_OVER_PI * (x + _CUBIC * x**3))
    return np.asarray(z * 4.0 * np.exp(-2.0 * z))
