"""How far two correct attention cores can lie apart on equal inputs (docs/verdicts.md).

The output is a convex combination of values, out_d = sum_j w_j v_jd with w = softmax(s) and
s_j = scale * sum_i q_i k_ji over the keys that the row may read. With

    u    unit roundoff of the recorded dtype: scores, weights and output may be stored in it
    e    unit roundoff of sums, those of float32 or of something wider
    S    max_j |scale| sum_i |q_i k_ji|        V_d = max_j |v_jd|        n keys, D channels

1. A score is off by at most d = ((D + 8) e + 6 u) S: D products and sums, the scale and the base of
   the exponential in e; a scaled query, the product, the scaled product, the masked score and the
   shift s_j - max s (at most 2 S) in u.
2. exp(s_j) is then off by a factor of at most 1 + t, t = exp(d) (1 + (2 n + 8) e + 4 u) - 1: exp
   itself, rescaling and summing n terms, the division, storing p and w.
3. Weights that are off by such factors move the combination by
   |sum_j w_j t_j (v_j - out)| / (1 - t) <= 2 t V_d / (1 - t).
4. n products and sums of w_j v_j add (2 n + 8) e V_d, storing the output 2 u V_d.

Two cores differ by at most twice the sum. Where t is not small the convex combination itself is the
bound: both outputs lie within V_d. V_d and S are taken over all key heads, so that nothing is
assumed about which query head reads which; windows, soft caps and sinks only make both smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format

Values = NDArray[np.float64]

_SUMS = 2.0**-24
"""Unit roundoff of float32: matrix units and softmax sum in float32 or wider."""

WHY = (
    "both outputs are convex combinations of the values; scores off by ((D+8)e+6u)S, weights by "
    "t = exp(that)(1+(2n+8)e+4u)-1, outputs by 2tV/(1-t)+((2n+8)e+2u)V each; u storage, e float32 "
    "sums (docs/verdicts.md)"
)


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """What one row reads.

    Args:
        q: [heads, head_dim].
        k: [keys, kv_heads, head_dim], v: [keys, kv_heads, value_dim]: the keys that it may read.
        scale: factor of q . k.
    """

    q: Values
    k: Values
    v: Values
    scale: float


def difference_bound(row: AttentionRow, fmt: Format) -> Values:
    """Largest |b - a| of two correct cores, [heads, value_dim]; ``fmt`` is the recorded dtype.
    Infinite where scores may be too large for it."""
    keys, _, head_dim = row.k.shape
    u = 2.0 ** -(fmt.mantissa_bits + 1)
    e = min(u, _SUMS)
    sizes = np.abs(row.k) @ np.abs(row.q).T  # [keys, kv_heads, heads]
    s = abs(row.scale) * sizes.max(axis=(0, 1), initial=0.0)  # [heads]
    largest = np.abs(row.v).max(axis=(0, 1), initial=0.0)  # [value_dim]
    d = ((head_dim + 8) * e + 6 * u) * s
    fixed = (2 * keys + 8) * e + 4 * u
    with np.errstate(over="ignore", invalid="ignore"):
        t = np.expm1(d) * (1 + fixed) + fixed
        moved = np.where(t < 0.5, 2 * t / (1 - t), np.inf)
    rounding = (2 * keys + 8) * e + 2 * u
    one_side = np.minimum(moved, 1.0) + rounding
    one_side = np.where(s < fmt.max_finite, one_side, np.inf)  # scores may overflow: no bound
    underflow = 2 * (keys * largest + 1) * fmt.min_subnormal  # of weights, and of the output
    return np.asarray(2 * one_side[:, None] * largest[None, :] + underflow[None, :])
