"""C2: the rigorous bound B_d on |output - exact|, from five terms (docs/numerics-attention.md)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.formats import get_format
from verify.reference.attention.streaming import values
from verify.reference.certificates.attention.chain import U
from verify.reference.certificates.attention.walk import Walk
from verify.reference.replay.arithmetic import Arithmetic

_ELEMENTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Budget:
    """The terms, each [rows, value_dim], in units of the output."""

    weights: Tensor
    """T1: errors of the weights that numerator and mass share."""
    probability: Tensor
    """T2: rounding of P."""
    accumulation: Tensor
    """T3: accumulation of P V."""
    mass: Tensor
    """T4: accumulation of l."""
    final: Tensor
    """T5: division, v_scale, rounding to the output format."""
    reference: Tensor
    """B_ref of the FP64 reference."""

    @property
    def total(self) -> Tensor:
        """B_d."""
        return (self.weights + self.probability + self.accumulation + self.mass + self.final
                + self.reference)  # fmt: skip


def attention_budget(
    walk: Walk, arithmetic: Arithmetic, output: Tensor, reference_bound: Tensor
) -> Budget:
    """B_d of ``arithmetic``.

    Args:
        output, reference_bound: [rows, value_dim], of the FP64 reference, ``v_scale`` included.
    """
    v_scale, l = walk.group.v_scale, walk.total[:, None]
    o = output / v_scale
    rounded = arithmetic.mass == "rounded"
    shared, rounding = _weighted_spreads(walk, o, around_output=rounded)
    worst = (walk.delta + _relative_rounding(walk, rounded)).amax(1)[:, None]
    room = (1 - worst).clamp_min(0.5)
    if walk.group.sink is not None:  # e^(sink - m): its own two roundings and two exponentials
        off = 4 * U * (walk.group.sink.abs() + walk.m.abs()) + 3 * arithmetic.exp_error
        shared = shared + (walk.sink * off)[:, None] / l * o.abs()
    t1 = shared / room
    t2 = rounding / room if rounded else rounding * (1 + worst)
    t3 = walk.values.bound / l
    t4 = (walk.mass.bound + 3 * U * walk.sink)[:, None] / l * o.abs()
    before = (t1 + t2 + t3 + t4) * v_scale
    return Budget(t1 * v_scale, t2 * v_scale, t3 * v_scale, t4 * v_scale,
                  _final(output.abs() + before, arithmetic), reference_bound)  # fmt: skip


def _final(largest: Tensor, arithmetic: Arithmetic) -> Tensor:
    fmt = get_format(arithmetic.output)
    unit = 2.0 ** -(fmt.mantissa_bits + 1)
    fp32 = 0.0 if arithmetic.output == "float32" else unit
    return (fp32 + 4 * U) * largest + unit * 2.0**fmt.min_exponent


def _relative_rounding(walk: Walk, rounded: bool) -> Tensor:
    p = torch.exp(walk.x - walk.m[:, None])
    relative = torch.where(p > 0, walk.rounding / p.clamp_min(1e-300), 0.0)
    return relative.clamp_max(0.25) if rounded else torch.zeros_like(p)


def _weighted_spreads(walk: Walk, o: Tensor, *, around_output: bool) -> tuple[Tensor, Tensor]:
    """sum w_j delta_j |v_j - o| and the rounding of P against |v_j - o| or |v_j|; in units of o."""
    p = torch.exp(walk.x - walk.m[:, None])
    weights = torch.stack([p * walk.delta, walk.rounding], dim=1) / walk.total[:, None, None]
    rows, keys = walk.x.shape
    chunk = max(1, _ELEMENTS // (rows * o.shape[1]))
    sums = o.new_zeros(rows, 2, o.shape[1])
    for low in range(0, keys, chunk):
        v, _ = values(walk.group, walk.first + low, walk.first + min(low + chunk, keys))
        part = weights[:, :, low : low + chunk]
        distance = (v - o[:, None]).abs_()
        if around_output:
            sums += torch.bmm(part, distance)
        else:
            sums[:, 0] += torch.bmm(part[:, :1], distance)[:, 0]
            sums[:, 1] += part[:, 1] @ v.abs()
    return sums[:, 0], sums[:, 1]
