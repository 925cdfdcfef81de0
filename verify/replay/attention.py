"""An attention core held against FP64 on the operands that it read: bounds from its roundings.

For one query row with weights w = softmax(s), s_j = scale * sum_i q_i k_ji and o_d = sum_j w_j v_jd:

1. A score is off by e_j. Products and sums in FP32 (unit e) contribute at most (D + 4) e a_j with
   a_j = |scale| sum_i |q_i k_ji|, typically sqrt(D) e a_j; each time that it is stored in a format
   of unit roundoff u_s it is off by u_s |s_j| more. The shift by the maximum adds e (|s_j| + |m|),
   the exponential 4 e.
2. Errors common to all scores cancel in w; what is left moves o_d by sum_j w_j (v_jd - o_d) e_j.
3. Weights stored with unit u_p add sum_j w_j v_jd r_j with |r_j| <= u_p.
4. n products and sums of w_j v_jd and the sum of the weights add at most (2 n + 8) e sum_j w_j
   |v_jd|, storing the output u_o |o_d|.

The sums of absolute values are a rigorous bound to first order, widened by exp(2 max e_j) for the
rest. Independent roundings add in squares (uniform errors: u / sqrt(3)), which gives the expected
deviation. A correct core stays within some deviations; one beyond the bound is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format

Values = NDArray[np.float64]

FP32_UNIT = 2.0**-24
DEVIATIONS = 10.0
"""A normal error exceeds ten deviations with probability 1.5e-23. Not six: equal keys make equal
roundings, which do not average out."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Unit roundoffs with which a core stores scores (``times`` over), weights and output."""

    score: float
    weight: float
    output: float
    times: int = 2
    largest: float = np.inf
    """Products of q and k beyond it become infinite when they are stored, before they are scaled;
    what follows may be anything, NaN included."""
    underflow: float = 0.0
    """Absolute error of a stored weight that is too small for the format: half its smallest subnormal."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows [rows, value_dim]: FP64 output, rigorous bound and expected deviation of a core."""

    exact: Values
    bound: Values
    deviation: Values


def unit(fmt: Format) -> float:
    """Unit roundoff of a float format."""
    return float(2.0 ** -(fmt.mantissa_bits + 1))


def storage(implementation: str, fmt: Format) -> Storage:
    """What an implementation stores, by the name under which transformers and torch know it.

    ``eager`` stores scores and weights in the dtype of the model; fused cores keep scores in FP32
    and hand the weights to the second product in the dtype of the values.
    """
    u = unit(fmt)
    fused = implementation != "eager"
    if fused:
        return Storage(score=min(u, FP32_UNIT), weight=u, output=u)
    return Storage(score=u, weight=u, output=u, largest=fmt.max_finite)


def judge_rows(
    q: Values, k: Values, v: Values, allowed: NDArray[np.bool_], scale: float, stored: Storage
) -> Judged:
    """The truth and what roundings may do to it, for query rows that read the same keys.

    Args:
        q: [rows, head_dim]; k: [keys, head_dim]; v: [keys, value_dim]; float64.
        allowed: [rows, keys], which keys a row may read; at least one in each row.
    """
    e = FP32_UNIT
    keys, dim = k.shape
    s = scale * (q @ k.T)
    size = abs(scale) * (np.abs(q) @ np.abs(k).T)
    masked = np.where(allowed, s, -np.inf)
    top = masked.max(axis=1, keepdims=True)
    w = np.exp(masked - top)
    w /= w.sum(axis=1, keepdims=True)
    s = np.where(allowed, s, 0.0)
    o = w @ v
    shift = e * (np.abs(s) + np.abs(top)) + 4 * e
    most = (dim + 4) * e * size + stored.times * stored.score * np.abs(s) + shift
    likely = dim * (e * size) ** 2 + (stored.times * (stored.score * s) ** 2 + shift**2) / 3
    mass = w @ np.abs(v)
    sums = (2 * keys + 8) * e
    spread = np.abs(v[None] - o[:, None])  # [rows, keys, value_dim]
    bound = np.einsum("rk,rkd->rd", w * most, spread) + (stored.weight + sums) * mass
    bound = (bound + stored.output * np.abs(o)) * np.exp(
        2 * np.where(allowed, most, 0.0).max(axis=1, keepdims=True)
    )
    bound += stored.underflow * (allowed @ np.abs(v))
    square = np.einsum("rk,rkd->rd", w**2 * likely, spread**2)
    square += stored.underflow**2 / 3 * (allowed @ v**2)
    square += (w**2 @ v**2) * stored.weight**2 / 3 + (np.sqrt(2 * keys + 8) * e * mass) ** 2
    square += (stored.output * o) ** 2 / 3
    return Judged(o, bound, np.sqrt(square))
