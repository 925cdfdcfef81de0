"""A-priori error budgets of the layers, in closed form, and the running one of an enclosure.

A budget is a :class:`verify.bounds.Bound` for every element: one reason, an array of values. The
closed forms need no second pass over the data and show what an error depends on; the enclosure is
sharper. docs/numerics.md derives each line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.bounds import Bound
from verify.formats import get_format
from verify.reference.layers.accumulate import FP32_UNIT
from verify.reference.layers.activations import activation
from verify.reference.layers.arithmetic import Accumulation, Arithmetic
from verify.reference.layers.checks import Array, as_float64, check_count
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import half_ulp, round_to
from verify.reference.layers.softmax import softmax

# max |d silu(g) / dg|, at g = 2.3994.
SILU_SLOPE = 1.0999


@dataclass(frozen=True, slots=True)
class Budget:
    """An upper bound on the absolute error of each element."""

    values: Array
    why: str

    def at(self, *index: int) -> Bound:
        """The bound of one element."""
        return Bound(float(self.values[index]), self.why)

    def used_by(self, error: Array) -> float:
        """The largest share of the budget that an error uses; above 1 it is broken."""
        size = np.abs(error)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(size == 0.0, 0.0, size / self.values)
        return float(share.max())

    def plus(self, other: Budget) -> Budget:
        return Budget(self.values + other.values, f"{self.why} + {other.why}")


def floor_budget(exact: Any, store: str) -> Budget:
    """The error of rounding the exact result once: nobody with this output format does better."""
    values = as_float64(exact, "exact")
    return Budget(np.abs(round_to(values, store) - values), f"|round(exact) - exact| in {store}")


def storing_budget(exact: Any, store: str, roundings: int = 1) -> Budget:
    """``r (h |y| + eta)``: r roundings to a format of half-ulp h and half smallest subnormal eta."""
    check_count("roundings", roundings, least=0)
    fmt = get_format(store)
    values = np.abs(as_float64(exact, "exact"))
    h, eta = half_ulp(store), fmt.min_subnormal / 2
    return Budget(roundings * (h * values + eta), f"{roundings} x (h|y| + eta), h of {store}")


def running_budget(held: Enclosure, exact: Any, store: str) -> Budget:
    """The largest distance from the exact result inside an enclosure, its store included."""
    values = as_float64(exact, "exact").reshape(held.mid.shape)
    top, bottom = round_to(held.hi, store) - values, values - round_to(held.lo, store)
    return Budget(np.maximum(np.maximum(top, bottom), 0.0), f"enclosure, rounded to {store}")


def gemm_budget(x: Any, weight: Any, accumulate: Accumulation, store: str) -> Budget:
    """``factor |x| |w|^T + h |y| + eta``; the factor is the accumulation's ``a_priori_factor``.

    Args:
        x: [rows, in]; weight: [out, in].
    """
    rows, w = as_float64(x, "x"), as_float64(weight, "weight")
    factor = accumulate.a_priori_factor(w.shape[1])
    added = factor * (np.abs(rows) @ np.abs(w).T)
    # The stored value is off by h times itself, and it is the sum with its own error.
    exact = np.abs(rows @ w.T) + added
    return Budget(added, f"a priori {factor:.3g} sum|ab|").plus(storing_budget(exact, store))


def norm_budget(
    exact: Any, hidden: int, store: str, *, roundings: int = 1, arithmetic: Arithmetic | None = None
) -> Budget:
    """RMSNorm: ``|y| (r h (1 + h) + (c/2 + 6) u + f) + r eta``, c the chain of the sum of squares,
    f the error of the reciprocal root. Half of the sum's relative error reaches its root."""
    arithmetic = arithmetic or Arithmetic()
    values = np.abs(as_float64(exact, "exact"))
    chain = arithmetic.chain_of(hidden)
    relative = 1.02 * ((chain / 2 + 6) * FP32_UNIT + arithmetic.function_error)
    held = Budget(values * relative, f"|y| ((c/2 + 6) u + f), c = {chain}")
    return held.plus(storing_budget(values * (1 + half_ulp(store) + relative), store, roundings))


def gated_budget(
    gate: Any,
    up: Any,
    store: str,
    *,
    gate_error: Any = 0.0,
    up_error: Any = 0.0,
    roundings: int = 1,
    arithmetic: Arithmetic | None = None,
) -> Budget:
    """SwiGLU: ``1.0999 |up| dg + |silu(g)| du + |y| (4 u + f) + r (h |y| + eta)``.

    Args:
        gate, up: the exact inputs; gate_error, up_error: bounds on how far the kernel's were off
            (0 where both read the same stored tensors).
        roundings: 1 fused, 2 with the activation stored.
    """
    arithmetic = arithmetic or Arithmetic()
    partner, active = as_float64(up, "up"), activation(gate, function="silu")
    moved_gate, moved_up = np.abs(np.asarray(gate_error)), np.abs(np.asarray(up_error))
    inherited = SILU_SLOPE * (np.abs(partner) + moved_up) * moved_gate + np.abs(active) * moved_up
    product = np.abs(active * partner)
    own = 1.01 * product * (5 * FP32_UNIT + arithmetic.function_error) + 2.0**-120 * np.abs(partner)
    held = Budget(inherited + own, "1.0999 |up| dg + |silu(g)| du + |y| (5 u + f)")
    # Storing the activation costs eta |up| where it is subnormal.
    eta = get_format(store).min_subnormal / 2
    stored = storing_budget(1.01 * product + held.values, store, roundings)
    return held.plus(Budget(stored.values + (roundings - 1) * eta * np.abs(partner), stored.why))


def rope_budget(
    first: Any,
    second: Any,
    store: str,
    *,
    angle_error: Any = 0.0,
    roundings: int = 1,
    arithmetic: Arithmetic | None = None,
) -> Budget:
    """One turned element of a pair (a, b): ``(|a| + |b|) (da + 3 u + f) + r h (|a| + |b|) + r eta``.

    Args:
        angle_error: radians by which the kernel's angle is off.
        roundings: 1 fused, 2 with both products stored first.
    """
    arithmetic = arithmetic or Arithmetic()
    size = np.abs(as_float64(first, "first")) + np.abs(as_float64(second, "second"))
    off = np.abs(np.asarray(angle_error)) + 3 * FP32_UNIT + arithmetic.function_error
    held = Budget(1.01 * size * off, "(|a| + |b|) (da + 3 u + f)")
    stored = storing_budget(1.01 * size * (1 + off), store, roundings)
    eta = (roundings - 1) * get_format(store).min_subnormal / 2
    return held.plus(Budget(stored.values + eta, stored.why))


def softmax_budget(scores: Any, store: str, *, arithmetic: Arithmetic | None = None) -> Budget:
    """``p (2 f + u (|x - max| + max reach + c + 4)) + 2^-125 + h p + eta`` along the last axis.

    The exponent's rounding u |x - max| is a relative error of the exponential; the sum has that of
    its terms and of c additions.
    """
    arithmetic = arithmetic or Arithmetic()
    values, p = as_float64(scores, "scores"), softmax(scores)
    with np.errstate(invalid="ignore"):
        reach = np.where(p > 0.0, values.max(axis=-1, keepdims=True) - values, 0.0)
    chain = arithmetic.chain_of(values.shape[-1])
    spent = reach + (p * reach).sum(axis=-1, keepdims=True) + chain + 4
    relative = 1.02 * (2 * arithmetic.function_error + FP32_UNIT * spent)
    flushed = 2.0**-125 * (1 + p * values.shape[-1])
    held = Budget(p * relative + flushed, f"p (2 f + u (|x - max| + mean + c + 4)), c = {chain}")
    return held.plus(storing_budget(p + held.values, store))
