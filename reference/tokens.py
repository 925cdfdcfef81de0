"""Logits of two runs: margins, and how far the leaders move (flips.py counts on from here).

Everything is per position along axis 0 and needs teacher forcing: both runs have seen the same
tokens before each position. After the first difference of free-running text the contexts differ
and nothing here has a meaning. docs/numerics.md derives the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from verify.errors import ArgumentError
from verify.reference.layers.checks import as_float64, check_count, check_shape
from verify.reference.layers.grid import spacing
from verify.reference.layers.select import TieRule, top_k

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

# Candidates whose shifts against the first give sigma: enough for a stable estimate, few enough
# that they compete.
CANDIDATES = 8
# Positions worked on at a time; a vocabulary row of 2^18 logits takes 2 MiB.
_ROWS = 32


@dataclass(frozen=True, slots=True)
class TopTwo:
    """The two largest logits of each position. All arrays are [positions].

    ``margin`` is z1 - z2; ``margin_ulps`` counts it in spacings of the storage format at z1;
    ``tie`` is margin 0, where the tie rule decides and not the model.
    """

    first: Ids
    second: Ids
    margin: Array
    margin_ulps: Array
    tie: NDArray[np.bool_]


def top_two(logits: Any, fmt: str, *, ties: TieRule = "lowest-index") -> TopTwo:
    """Leading candidates of each position.

    Args:
        logits: [positions, vocabulary], as stored in ``fmt``.
        fmt: the storage format, for the unit of ``margin_ulps``.
        ties: which of several equal maxima counts as first.

    Raises:
        ArgumentError: fewer than two axes or two tokens, or NaN.
    """
    values = _logits(logits, "logits")
    leaders = top_k(values, 2, ties=ties)
    z = np.take_along_axis(values, leaders, axis=1)
    with np.errstate(invalid="ignore"):
        margin = z[:, 0] - z[:, 1]
    if np.isnan(margin).any():
        raise ArgumentError(
            "no finite logit to compare",
            where=f"logits[{int(np.isnan(margin).argmax())}]",
            found="two infinities lead",
            allowed="at most one infinite logit of a sign",
        )
    with np.errstate(over="ignore"):  # float64 next to zero
        steps = margin / spacing(z[:, 0], fmt)
    return TopTwo(leaders[:, 0], leaders[:, 1], margin, steps, np.asarray(margin == 0.0))


@dataclass(frozen=True, slots=True)
class TokenShift:
    """Two runs' logits at the same positions. All arrays are [positions].

    With dz = b - a: ``pair_shift`` is dz_x - dz_y for A's choice x against B's choice y, or
    against A's runner-up where they agree; A's choice survives exactly if pair_shift > -margin.
    ``shift`` is max |dz| and ``spread`` r = max dz - min dz, over tokens finite in both.
    ``sigma`` is the rms of dz_1 - dz_j over the leading candidates j of A.
    ``kl`` is KL(a || b) in nats, ``tv`` the total variation of the two distributions; they cannot
    exceed ``kl_bound`` = r^2/8 and ``tv_bound`` = tanh(r/4).
    """

    a: TopTwo
    b: TopTwo
    pair_shift: Array
    shift: Array
    spread: Array
    sigma: Array
    kl: Array
    tv: Array

    @property
    def flipped(self) -> NDArray[np.bool_]:
        return np.asarray(self.a.first != self.b.first)

    @property
    def kl_bound(self) -> Array:
        return self.spread**2 / 8.0

    @property
    def tv_bound(self) -> Array:
        return np.tanh(self.spread / 4.0)

    @property
    def safe(self) -> NDArray[np.bool_]:
        """Positions where no flip is possible: margin > 2 max |dz|."""
        return np.asarray(self.a.margin > 2.0 * self.shift)


def compare_logits(
    logits_a: Any,
    logits_b: Any,
    fmt_a: str,
    fmt_b: str | None = None,
    *,
    ties: TieRule = "lowest-index",
    candidates: int = CANDIDATES,
) -> TokenShift:
    """Margins and shifts of two runs at the same, teacher-forced positions.

    Args:
        logits_a, logits_b: [positions, vocabulary], as stored.
        fmt_a, fmt_b: storage formats; B's is A's by default.
        candidates: leading tokens of A whose shifts give sigma.

    Raises:
        ArgumentError: shapes that differ, NaN, or fewer than two tokens.
    """
    a, b = _logits(logits_a, "logits_a"), _logits(logits_b, "logits_b")
    check_shape("logits_b", b, a.shape, "the shape of logits_a")
    check_count("candidates", candidates, least=2)
    lead_a, lead_b = top_two(a, fmt_a, ties=ties), top_two(b, fmt_b or fmt_a, ties=ties)
    rivals = np.where(lead_a.first != lead_b.first, lead_b.first, lead_a.second)
    parts = [
        _shift_rows(a[i : i + _ROWS], b[i : i + _ROWS], candidates) for i in range(0, len(a), _ROWS)
    ]
    shift, spread, sigma, kl, tv = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = np.arange(len(a))
    with np.errstate(invalid="ignore"):
        pair = (b[rows, lead_a.first] - a[rows, lead_a.first]) - (b[rows, rivals] - a[rows, rivals])
    return TokenShift(lead_a, lead_b, pair, shift, spread, sigma, kl, tv)


def _shift_rows(a: Array, b: Array, candidates: int) -> tuple[Array, Array, Array, Array, Array]:
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        dz = np.where(finite, b - a, 0.0)
    largest = np.where(finite, dz, -np.inf).max(axis=1)
    smallest = np.where(finite, dz, np.inf).min(axis=1)
    leaders = top_k(a, min(candidates, a.shape[1]))
    led = np.take_along_axis(dz, leaders, axis=1)
    sigma = np.sqrt(np.mean((led[:, :1] - led[:, 1:]) ** 2, axis=1))
    log_p, log_q = log_softmax(a, axis=1), log_softmax(b, axis=1)
    p = np.exp(log_p)
    with np.errstate(invalid="ignore"):
        kl = np.where(p > 0.0, p * (log_p - log_q), 0.0).sum(axis=1)
    tv = 0.5 * np.abs(p - np.exp(log_q)).sum(axis=1)
    return np.maximum(largest, -smallest), largest - smallest, sigma, np.maximum(kl, 0.0), tv


def _logits(values: Any, name: str) -> Array:
    array = as_float64(values, name)
    if array.ndim != 2 or array.shape[1] < 2:
        raise ArgumentError(
            "logits are one row a position",
            where=name,
            found=f"shape {array.shape}",
            allowed="[positions, vocabulary], at least two tokens",
        )
    if np.isnan(array).any():
        row, token = (int(axis[0]) for axis in np.nonzero(np.isnan(array)))
        raise ArgumentError("NaN has no rank", where=f"{name}[{row}, {token}]", found="NaN")
    return array
