"""FP64 attention that streams over the keys: bounded memory at any length, on CPU or CUDA.

Per row: ``x_j = scale * (q . k_j)``, softcapped; ``p_j = exp(x_j - m)`` with m the largest x,
sink included; ``l = sum p_j``; ``w_j = p_j / l``; ``o = sum w_j v_j``. The maximum is found in a
pass of its own, so nothing is ever rescaled; no kernel works in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.reference.attention.inputs import (
    AttentionInputs,
    Row,
    RowGroup,
    check_rows,
    row_groups,
)

BLOCK = 4096
"""Keys a block: [256 rows, 4096 keys] of float64 take 8 MiB."""

FP16_MIN_NORMAL = 2.0**-14

_EPS = 2.0**-53


@dataclass(frozen=True, eq=False)
class AttentionResult:
    """The answer in FP64, how far it can be off, and the measurables that error bounds need.

    Leading axis: the rows, in the order of ``rows``. w_j are the softmax weights.
    """

    rows: tuple[Row, ...]
    output: Tensor
    """[rows, value_dim]: o = sum w_j v_j; 0 for a row without keys."""
    lse: Tensor
    """[rows], natural log of the sum of exponentials, sink included; -inf without keys."""
    weighted_abs: Tensor
    """W, [rows, value_dim]: sum w_j |v_j|."""
    spread: Tensor
    """M, [rows, value_dim]: sum w_j |v_j - o|, the sink with its value 0 included; or an upper
    bound of it, see ``attend``."""
    weighted_square: Tensor
    """Q, [rows, value_dim]: sqrt(sum w_j^2 v_j^2)."""
    effective_keys: Tensor
    """n_eff, [rows]: 1 / sum w_j^2."""
    underflow: Tensor
    """T, [rows, value_dim]: sum of |v_j| over visible keys with exp(x_j - m) < underflow_below."""
    mass: Tensor
    """l, [rows]: sum of exp(x_j - m); turns T, which is not a weighted sum, into weights."""
    bound: Tensor
    """B_ref, [rows, value_dim]: |output - exact| is at most this."""
    lse_bound: Tensor
    """[rows]: |lse - exact| is at most this."""

    def describe(self) -> str:
        """The printed error bound, absolute and as a share of W."""
        share = (self.bound / self.weighted_abs.clamp_min(1e-300)).max()
        return (
            f"FP64 attention, {len(self.rows)} rows: error at most {float(self.bound.max()):.2e} "
            f"absolute, {float(share):.2e} of sum w|v|"
        )


def attend(
    inputs: AttentionInputs,
    rows: Sequence[Row] | None = None,
    *,
    block: int = BLOCK,
    underflow_below: float = FP16_MIN_NORMAL,
    exact_spread: bool = True,
) -> AttentionResult:
    """Attention of the chosen rows (all, heads innermost, if None) in FP64.

    Non-finite scores make a row NaN; a non-finite value makes its column NaN in the rows that see
    it. Masked keys are never read into a sum, whatever they hold.

    Args:
        exact_spread: M itself, at an elementwise pass over keys x value_dim for each row; else
            the bound min(2 W, sqrt(sum w v^2 - o^2)), from Jensen's inequality, almost for free.

    Raises:
        ArgumentError: a row outside of q.
    """
    chosen = check_rows(inputs, rows)
    parts = [
        (group.index, _attend_group(group, block, underflow_below, exact_spread))
        for group in row_groups(inputs, chosen)
    ]
    order = torch.tensor([place for index, _ in parts for place in index]).argsort()
    merged = {
        name: torch.cat([part[name] for _, part in parts])[order.to(inputs.q.device)]
        for name in parts[0][1]
    }
    return AttentionResult(rows=tuple(chosen), **merged)


def scores(group: RowGroup, start: int, stop: int) -> Tensor:
    """[rows, stop - start], float64: scaled and softcapped scores, -inf where masked."""
    x = (group.q @ group.k[start:stop].double().T) * group.scale
    if group.softcap is not None:
        x = torch.tanh(x / group.softcap) * group.softcap
    return x.masked_fill(group.hidden(start, stop), -torch.inf)


def blocks(group: RowGroup, block: int) -> Iterator[tuple[int, int]]:
    """Key ranges that cover everything a row of the group sees."""
    first, last = group.span
    for start in range(first, last, block):
        yield start, min(start + block, last)


def values(group: RowGroup, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
    """[keys, value_dim], float64, with 0 for what is not finite, and where that is (or None)."""
    v = group.v[start:stop].double()
    broken = ~torch.isfinite(v)
    if not bool(broken.any()):
        return v, None
    return v.masked_fill(broken, 0.0), broken


def _attend_group(
    group: RowGroup, block: int, underflow_below: float, exact_spread: bool
) -> dict[str, Tensor]:
    maximum, longest_key = _largest_score(group, block)
    sums = _weighted_sums(group, maximum, block, underflow_below)
    spread = _spread(group, maximum, sums, block) if exact_spread else _spread_bound(sums)
    delta = weight_error(group, longest_key)
    sums |= {"spread": spread, "bound": _output_bound(group, sums, spread, delta, block)}
    scaled = {
        name: sums[name] * group.v_scale
        for name in ("output", "weighted_abs", "weighted_square", "underflow", "spread", "bound")
    }
    mass = sums["mass"]
    lse = torch.where(mass == 0, -torch.inf, maximum + torch.log(mass))
    lse_bound = delta / (1 - delta) + _EPS * (_terms(group, block) + lse.abs().clamp_max(1e300))
    kept = {"mass": mass, "effective_keys": sums["effective_keys"]}
    return scaled | kept | {"lse": lse, "lse_bound": lse_bound}


def _largest_score(group: RowGroup, block: int) -> tuple[Tensor, Tensor]:
    """The maximum m of each row, and the largest |k_j| (finite keys), which bounds every x."""
    maximum = group.q.new_full((len(group.index),), -torch.inf)
    longest = group.q.new_zeros(())
    for start, stop in blocks(group, block):
        maximum = torch.maximum(maximum, scores(group, start, stop).amax(1))
        norms = torch.linalg.vector_norm(group.k[start:stop].double(), dim=1)
        longest = torch.maximum(longest, norms[torch.isfinite(norms)].max(dim=0).values)
    if group.sink is not None:
        maximum = torch.maximum(maximum, group.sink)
    return maximum.masked_fill(torch.isneginf(maximum), 0.0), longest  # no keys: every p is 0


def _weighted_sums(
    group: RowGroup, maximum: Tensor, block: int, underflow_below: float
) -> dict[str, Tensor]:
    shape = (len(group.index), group.v.shape[1])
    o, size, second, square, small = (group.q.new_zeros(shape) for _ in range(5))
    mass, mass_square = group.q.new_zeros(shape[0]), group.q.new_zeros(shape[0])
    broken = torch.zeros(shape, dtype=torch.bool, device=group.q.device)
    for start, stop in blocks(group, block):
        p = torch.exp(scores(group, start, stop) - maximum[:, None])
        v, lost = values(group, start, stop)
        seen = ~group.hidden(start, stop)
        o += p @ v
        size += p @ v.abs()
        second += p @ (v * v)
        square += (p * p) @ (v * v)
        small += ((p < underflow_below) & seen).double() @ v.abs()
        mass += p.sum(1)
        mass_square += (p * p).sum(1)
        if lost is not None:
            broken |= (seen.double() @ lost.double()) > 0
    if group.sink is not None:
        sink = torch.exp(group.sink - maximum)
        mass, mass_square = mass + sink, mass_square + sink * sink
    total = torch.where(mass == 0, 1.0, mass)[:, None]
    return {
        "output": (o / total).masked_fill(broken, torch.nan),
        "weighted_abs": size / total,
        "second_moment": second / total,
        "weighted_square": square.sqrt() / total,
        "underflow": small,
        "mass": mass,
        "effective_keys": mass * mass / torch.where(mass_square == 0, 1.0, mass_square),
    }


def _spread(group: RowGroup, maximum: Tensor, sums: dict[str, Tensor], block: int) -> Tensor:
    """M needs o, so a pass of its own: elementwise over [rows, keys, value_dim], one row at a
    time to bound the memory."""
    o, mass = sums["output"], sums["mass"]
    spread = torch.zeros_like(o)
    for start, stop in blocks(group, block):
        p = torch.exp(scores(group, start, stop) - maximum[:, None])
        v, _ = values(group, start, stop)
        for row in range(len(group.index)):
            spread[row] += p[row] @ (v - o[row]).abs()
    if group.sink is not None:
        spread += torch.exp(group.sink - maximum)[:, None] * o.abs()
    return spread / torch.where(mass == 0, 1.0, mass)[:, None]


def _spread_bound(sums: dict[str, Tensor]) -> Tensor:
    o, second = sums["output"], sums["second_moment"]
    variance = (second * (1 + 1e-9) - o * o).clamp_min(0.0)  # the slack covers the cancellation
    return torch.minimum(2 * sums["weighted_abs"], variance.sqrt())


def weight_error(group: RowGroup, longest_key: Tensor) -> Tensor:
    """[rows]: by what factor (less one) each computed p_j can be off.

    With e = 2^-53, X = |scale| |q| max|k_j| >= every |x_j| (Cauchy-Schwarz), Y = max(X, |sink|):
    d = e ((D + 12) X + 2 Y + 4), from the dot product of D terms in any order, scale, softcap,
    subtraction of m, and an exponential within 2 ulp (SLEEF and CUDA state 1 ulp).
    """
    reach = abs(group.scale) * torch.linalg.vector_norm(group.q, dim=1) * longest_key
    top = reach if group.sink is None else torch.maximum(reach, group.sink.abs())
    error: Tensor = _EPS * ((group.q.shape[1] + 12) * reach + 2 * top + 4)
    return error


def _output_bound(
    group: RowGroup, sums: dict[str, Tensor], spread: Tensor, delta: Tensor, block: int
) -> Tensor:
    """B_ref: how far this FP64 computation can be from the exact answer.

    Factors 1 + d on the weights move o by at most d M / (1 - d), since they enter numerator and
    denominator alike. The sums over keys add ``terms * e`` of W for the numerator and of |o| for
    the denominator. Underflow of p below 2^-1022 is left out: it is below every quantity here.
    """
    weights = (delta / (1 - delta))[:, None] * spread
    return weights + _EPS * _terms(group, block) * (sums["weighted_abs"] + sums["output"].abs())


def _terms(group: RowGroup, block: int) -> int:
    """Roundings in the longest path of a sum over keys: inside a block in any order, one addition
    a block, and three for sink, division and v_scale."""
    first, last = group.span
    return min(block, last - first) + -(-(last - first) // block) + 3
