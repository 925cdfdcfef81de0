"""What an accumulation chain can do to a sum: a rigorous bound, the expected drift, its noise.

One fused step of a tensor core with accumulator c and L products works on the quantum
``q = 2^(E - F)``, E the largest exponent among them. Each of at most L terms loses less than q,
toward zero; the sum is then cut to 24 bits. So with S the exact partial sum and ``b`` the bound so
far, ``b <- b + L q + 2^-23 (|S| + b)``. The same quantities *predict* the loss: what each product
loses at q is computed exactly, what the accumulator loses is half a unit in the mean (none where
everything is a multiple of a coarser grain).
An FP32 fused multiply-add loses at most 2^-24 of each partial sum, and nothing in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.reference.replay.arithmetic import Arithmetic, Chain

U = 2.0**-24
"""Half an ulp of 1 in FP32: the relative error of one rounding to nearest."""

_FMA_GROUP = 8  # fused multiply-adds whose partial sums are bounded together
_A_PRIORI = 5 * 2.0**-23  # one step errs by at most this times the largest quantity in it
_ELEMENTS = 1 << 19  # of a temporary: 4 MiB, so that several stay in the cache
_EXPONENT_BITS = 0x7FF0000000000000


def last_bit(x: Tensor) -> Tensor:
    """The largest power of two that x is a multiple of; inf for 0; float64."""
    significand = (x.view(torch.int64) & ((1 << 52) - 1)) | (1 << 52)
    unit = (significand & -significand).double() * power_of_two(x) * 2.0**-52
    return torch.where(x == 0, torch.inf, unit)


def power_of_two(x: Tensor) -> Tensor:
    """2^floor(log2 |x|), 0 for 0; float64."""
    return (x.view(torch.int64) & _EXPONENT_BITS).view(torch.float64)


@dataclass(frozen=True, slots=True)
class ChainRule:
    """The constants of one chain.

    Args:
        products: L; the group of multiply-adds that are bounded together for ``fma``.
        fraction_bits: F; 0 for ``fma``.
        pinned: smallest normal operand: exponents of subnormals are not normalised.
        final: relative bound of the final rounding of a step.
        final_ulp: spacing of the accumulator relative to its leading bit.
        truncates: the final rounding is toward zero.
    """

    products: int
    fraction_bits: int
    pinned: float
    final: float
    final_ulp: float
    truncates: bool

    @property
    def tensor_core(self) -> bool:
        return self.fraction_bits > 0


def chain_rule(chain: Chain, arithmetic: Arithmetic) -> ChainRule:
    """The constants of ``chain`` with the operands of ``arithmetic``."""
    if chain.kind == "fma":
        return ChainRule(_FMA_GROUP, 0, 0.0, U, 2.0**-23, truncates=False)
    unit = chain.unit(arithmetic.operands)
    pinned = 2.0**-126 if arithmetic.operands == "bfloat16" else 2.0**-14
    if chain.output == "float16":
        return ChainRule(unit.products, unit.fraction_bits, pinned, 2.0**-11, 2.0**-10, False)
    return ChainRule(unit.products, unit.fraction_bits, pinned, 2.0**-23, 2.0**-23, True)


@dataclass(eq=False)
class Accumulated:
    """A running sum and what accumulation did to it; each [rows, value_dim], float64."""

    total: Tensor
    """Exact sum of the products."""
    size: Tensor
    """Sum of their magnitudes."""
    drift: Tensor
    """Expected deviation."""
    variance: Tensor
    bound: Tensor
    coherent: Tensor
    """What steps that add the same number as the step before can lose or gain alike."""
    grain: Tensor
    """The sum is a multiple of this power of two; inf for an empty sum."""
    added: Tensor
    """What the last step added."""

    @classmethod
    def zeros(cls, like: Tensor) -> Accumulated:
        zero = torch.zeros_like(like)
        grain = torch.full_like(like, torch.inf)
        return cls(zero, zero, zero, zero, zero, zero, grain, zero)

    def scale(self, factor: Tensor, *, rounded: Tensor) -> Accumulated:
        """Times ``factor`` [rows]; where ``rounded`` [rows], the product is rounded in FP32."""
        f, once = factor[:, None], rounded[:, None].double()
        total, size = self.total * f, self.size * f
        reach = total.abs() + 2.0**-10 * size  # the kernel's own sum may be off by a rounding of P
        return Accumulated(
            total, size, self.drift * f,
            self.variance * f * f + once * (U * total) ** 2 / 3,
            self.bound * f + once * U * (reach + self.bound * f),
            self.coherent * f,
            torch.where(once > 0, 0.0, self.grain),
            torch.where(once > 0, torch.nan, self.added),
        )  # fmt: skip

    def add(self, other: Accumulated) -> Accumulated:
        """One FP32 addition."""
        total, size = self.total + other.total, self.size + other.size
        bound, half_ulp = self.bound + other.bound, U * total.abs()
        again = (other.total == self.added).double()
        return Accumulated(
            total, size, self.drift + other.drift,
            self.variance + other.variance + half_ulp**2 / 3,
            bound + half_ulp + U * (2.0**-10 * size + bound),
            self.coherent + other.coherent + again * half_ulp,
            torch.minimum(self.grain, other.grain), other.total,
        )  # fmt: skip


def accumulate(p: Tensor, v: Tensor, start: Accumulated, rule: ChainRule) -> Accumulated:
    """``start`` plus p @ v, k ascending, in steps of ``rule.products``.

    Args:
        p: [rows, keys], v: [keys, value_dim]; float64, on the grids of the operands.
    """
    state = start
    room = max(1, _ELEMENTS // max(1, p.shape[0] * v.shape[1]))
    chunk = max(rule.products, room // rule.products * rule.products)
    for low in range(0, p.shape[1], chunk):
        state = _accumulate_chunk(p[:, low : low + chunk], v[low : low + chunk], state, rule)
    return state


def _accumulate_chunk(p: Tensor, v: Tensor, start: Accumulated, rule: ChainRule) -> Accumulated:
    p, v = _pad(p, 1, rule.products), _pad(v, 0, rule.products)
    rows, width = start.total.shape
    steps = p.shape[1] // rule.products
    terms = (p[:, :, None] * v).view(rows, steps, rule.products, width)
    sums = terms.sum(2)
    after = start.total[:, None] + sums.cumsum(1)
    before = after - sums
    size = start.size + p @ v.abs()
    # How far the kernel's own partial sum can be from this one: P may be rounded the other way
    # (2^-10 of each term), and it carries the errors so far.
    doubt = 2.0**-10 * size + start.bound + steps * _A_PRIORI * size
    again = _repeats(sums, start.added)
    grain = torch.minimum(start.grain, last_bit(p).amin(1)[:, None] * last_bit(v).amin(0))
    ulp = power_of_two(after) * rule.final_ulp
    if not rule.tensor_core:
        added = terms.abs_().sum(2)
        group = before.abs() + added + doubt[:, None]
        bound = start.bound + rule.products * rule.final * group.sum(1)
        variance = start.variance + rule.products * (ulp * ulp).sum(1) / 12
        coherent = start.coherent + rule.products / 2 * (ulp * again).sum(1)
        return Accumulated(after[:, -1], size, start.drift, variance, bound, coherent, grain,
                           sums[:, -1])  # fmt: skip
    drifted = before + start.drift[:, None]
    loss, quantum = _expected_loss(p, v, terms, drifted, after + start.drift[:, None], grain, rule)
    larger = torch.maximum(quantum, ulp)
    return Accumulated(
        after[:, -1], size, start.drift - loss,
        start.variance + (quantum * quantum + ulp * ulp).sum(1) / 12,
        start.bound + _loss_bound(p, v, before, after, doubt, rule),
        start.coherent + (larger * again).sum(1), grain, sums[:, -1],
    )  # fmt: skip


def _repeats(sums: Tensor, added: Tensor) -> Tensor:
    """1 where a step adds the same number, not 0, as the one before it: its truncation is then no
    independent draw."""
    previous = torch.cat([added[:, None], sums[:, :-1]], dim=1)
    return ((sums == previous) & (sums != 0)).double()


def _expected_loss(
    p: Tensor, v: Tensor, terms: Tensor, before: Tensor, after: Tensor, grain: Tensor,
    rule: ChainRule,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean of what the steps lose, signed like the sum, and their quanta; consumes ``terms``."""
    powers = (_operand_power(p, rule)[:, :, None] * _operand_power(v, rule)).view_as(terms)
    own = power_of_two(before)
    quantum = torch.maximum(powers.amax(2), own) * 2.0**-rule.fraction_bits
    quantum = quantum.clamp_min(2.0**-200)  # a step of zeros
    lost = terms.div_(quantum[:, :, None]).frac_().sum(2) * quantum
    # The accumulator's bits down to the grain are as good as random: half of what is cut.
    finest = torch.maximum(own * rule.final_ulp, grain[:, None])
    lost += torch.copysign((quantum - finest).clamp_min_(0.0) / 2, before)
    if rule.truncates:
        ulp = power_of_two(after) * rule.final_ulp
        kept = torch.maximum(quantum, grain[:, None])
        lost += torch.copysign((ulp - kept).clamp_min_(0.0) / 2, after)
    return lost.sum(1), quantum


def _loss_bound(
    p: Tensor, v: Tensor, before: Tensor, after: Tensor, doubt: Tensor, rule: ChainRule
) -> Tensor:
    """Sum over the steps of L q + final (|S| + doubt), q at its largest."""
    rows, steps, width = before.shape
    largest_p = p.view(rows, steps, rule.products).amax(2) * (1 + 2.0**-10)
    largest_v = v.abs().view(steps, rule.products, width).amax(1)
    products = _operand_power(largest_p, rule)[:, :, None] * _operand_power(largest_v, rule)
    top = torch.maximum(products, power_of_two(before.abs() + doubt[:, None]))
    losses = rule.products * 2.0**-rule.fraction_bits * top.sum(1)
    floor = 0.0 if rule.truncates else steps * 2.0**-25  # FP16 accumulator: half its spacing
    return losses + rule.final * (after.abs().sum(1) + steps * doubt) + floor


def _operand_power(x: Tensor, rule: ChainRule) -> Tensor:
    power = power_of_two(x)
    return torch.where(power == 0, 0.0, power.clamp_min(rule.pinned))


def _pad(x: Tensor, axis: int, multiple: int) -> Tensor:
    missing = -x.shape[axis] % multiple
    if not missing:
        return x
    shape = list(x.shape)
    shape[axis] = missing
    return torch.cat([x, x.new_zeros(shape)], dim=axis)


def score_bound(q: Tensor, k: Tensor, rule: ChainRule) -> Tensor:
    """Bound on the error of each q . k_j as the chain computes it, [rows, keys].

    Args:
        q: [rows, head_dim], k: [keys, head_dim]; float64.
    """
    q, k = _pad(q, 1, rule.products), _pad(k, 1, rule.products)
    steps = q.shape[1] // rule.products
    room = max(1, _ELEMENTS // (q.shape[0] * steps))
    parts = [_score_bound(q, k[low : low + room], steps, rule)
             for low in range(0, k.shape[0], room)]  # fmt: skip
    return torch.cat(parts, dim=1)


def _score_bound(q: Tensor, k: Tensor, steps: int, rule: ChainRule) -> Tensor:
    q_steps = q.view(len(q), steps, rule.products).transpose(0, 1)
    k_steps = k.view(len(k), steps, rule.products).transpose(0, 1)
    sums = torch.bmm(q_steps, k_steps.transpose(1, 2))  # [steps, rows, keys]
    after = sums.cumsum(0)
    before = (after - sums).abs_()
    size = q.abs() @ k.abs().T
    doubt = steps * _A_PRIORI * size
    if not rule.tensor_core:
        added = torch.bmm(q_steps.abs(), k_steps.abs().transpose(1, 2))
        return rule.products * rule.final * (before + added + doubt).sum(0)
    largest_q = _operand_power(q_steps.abs().amax(2), rule)
    largest_k = _operand_power(k_steps.abs().amax(2), rule)
    top = torch.maximum(largest_q[:, :, None] * largest_k[:, None], power_of_two(before + doubt))
    losses = rule.products * 2.0**-rule.fraction_bits * top.sum(0)
    return losses + rule.final * (after.abs_().sum(0) + steps * doubt)
