"""FP64 walk of a kernel's own order: what its roundings are expected to do, and what they may do.

It is not the replay: no FP32 operation is carried out. Scores and weights stay exact; P is rounded
in the mean (where the declared maximum decides the grid), the accumulation is an expectation, a
variance and a bound for each chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.formats import get_format
from verify.reference.attention.inputs import RowGroup
from verify.reference.attention.streaming import scores, values
from verify.reference.certificates.attention.chain import (
    Accumulated,
    U,
    accumulate,
    chain_rule,
    power_of_two,
    score_bound,
)
from verify.reference.replay.arithmetic import Arithmetic

_CHUNK = 2048


@dataclass(eq=False)
class Mass:
    """l of the declared convention, and of the other one; [rows], float64."""

    total: Tensor
    other: Tensor
    bound: Tensor
    variance: Tensor

    @classmethod
    def zeros(cls, like: Tensor) -> Mass:
        return cls(*(torch.zeros_like(like) for _ in range(4)))

    def scale(self, factor: Tensor, *, rounded: Tensor) -> Mass:
        once = rounded.double() * U * self.total * factor
        variance = self.variance * factor**2 + once**2 / 3
        return Mass(self.total * factor, self.other * factor, self.bound * factor + once, variance)

    def add(self, other: Mass) -> Mass:
        total = self.total + other.total
        return Mass(total, self.other + other.other, self.bound + other.bound + U * total,
                    self.variance + other.variance + (U * total) ** 2 / 3)  # fmt: skip


@dataclass(eq=False)
class Part:
    """State of one part: m [rows] natural log, the accumulated P V, the mass, and its keys."""

    m: Tensor
    values: Accumulated
    mass: Mass
    keys: tuple[int, int]


@dataclass(eq=False)
class Walk:
    """A group's walk; all parts merged relative to m. Keys run from ``first``, the start of the
    tile that holds the first visible one, to the last visible one."""

    group: RowGroup
    first: int
    x: Tensor
    """[rows, keys]: natural-log scores, -inf where masked."""
    m: Tensor
    """[rows]: largest score, the sink not included."""
    delta: Tensor
    """[rows, keys]: bound on the relative error of a weight that numerator and l share."""
    rounding: Tensor
    """[rows, keys]: bound on the rounding of P, relative to e^m."""
    key_variance: Tensor
    """[rows, keys]: variance of that rounding about its expectation, relative to e^m squared."""
    parts: list[Part]
    values: Accumulated
    mass: Mass
    sink: Tensor
    """[rows]: e^(sink - m), 0 without one."""

    @property
    def total(self) -> Tensor:
        """[rows]: l with the sink, 1 for rows without keys."""
        total = self.mass.total + self.sink
        return torch.where(total == 0, 1.0, total)


def walk(group: RowGroup, arithmetic: Arithmetic, ranges: list[tuple[int, int]]) -> Walk:
    """Walk the rows of ``group`` through the parts ``ranges`` of the keys."""
    first, last = group.span
    cut = [(max(low, first), min(high, last), low) for low, high in ranges
           if low < last and high > first]  # fmt: skip
    low, high, origin = cut[0]
    first -= (low - origin) % arithmetic.tile
    cut[0] = (first, high, origin)
    x = torch.cat([scores(group, low, min(low + _CHUNK, last))
                   for low in range(first, last, _CHUNK)], dim=1)  # fmt: skip
    m = x.amax(1)
    m = m.masked_fill(torch.isneginf(m), 0.0)
    delta = _shared_error(group, arithmetic, x, m, cut)
    state = _Walker(group, arithmetic, first, x, m, delta)
    parts = [state.part(*keys) for keys in cut]
    merged = parts[0] if len(parts) == 1 else _merge(parts, m)
    sink = torch.zeros_like(m) if group.sink is None else torch.exp(group.sink - m)
    return Walk(group, first, x, m, delta, state.rounding, state.key_variance, parts,
                merged.values, merged.mass, sink)  # fmt: skip


def _merge(parts: list[Part], m: Tensor) -> Part:
    always = torch.ones_like(m, dtype=torch.bool)
    total, mass = Accumulated.zeros(parts[0].values.total), Mass.zeros(m)
    for part in parts:
        weight = torch.exp(part.m - m)
        total = total.add(part.values.scale(weight, rounded=always))
        mass = mass.add(part.mass.scale(weight, rounded=always))
    return Part(m, total, mass, (parts[0].keys[0], parts[-1].keys[1]))


def _shared_error(
    group: RowGroup, arithmetic: Arithmetic, x: Tensor, m: Tensor, cut: list[tuple[int, int, int]]
) -> Tensor:
    """delta, [rows, keys].

    The exponent, in natural log, is off by the score chain times the scale, U |x| for applying the
    scale, and 4 U |x - m| for the constant, the subtraction and log2 e (its rounding, and that of
    the product); a factor common to all keys cancels. Then ex2, and one more for each later change
    of the maximum and for each merge: factors (1 + e).
    """
    first, last = cut[0][0], cut[-1][1]
    rule = chain_rule(arithmetic.score_chain, arithmetic)
    chain = torch.cat(
        [
            score_bound(group.q, group.k[low : min(low + _CHUNK, last)].double().nan_to_num(), rule)
            for low in range(first, last, _CHUNK)
        ],
        dim=1,
    )
    size = torch.where(torch.isneginf(x), 0.0, x.abs())
    gap = torch.where(torch.isneginf(x), 0.0, m[:, None] - x)
    exponent = chain * abs(group.scale) + U * size + 4 * U * gap
    if group.softcap is not None:
        exponent += 2.0**-21 * group.softcap  # tanhf within 4 ulp, and two roundings, of <= cap
    factors = 1 + _changes(arithmetic, x, cut) + (len(cut) > 1) + (group.sink is not None)
    if arithmetic.base != "running":
        factors = factors + 1
    return torch.expm1(exponent + factors[:, None] * math.log1p(arithmetic.exp_error))


def _changes(arithmetic: Arithmetic, x: Tensor, cut: list[tuple[int, int, int]]) -> Tensor:
    """[rows]: how often the running maximum changes after a first key, the most of any part."""
    most = x.new_zeros(x.shape[0])
    first = cut[0][0]
    for low, high, origin in cut:
        tops = torch.stack([x[:, a - first : b - first].amax(1)
                            for a, b in _steps(arithmetic, low, high, origin)], dim=1)  # fmt: skip
        rises = tops.cummax(1).values.diff(dim=1) > 0
        most = torch.maximum(most, rises.sum(1).double())
    return most


def _steps(arithmetic: Arithmetic, low: int, high: int, origin: int) -> Iterator[tuple[int, int]]:
    """Key ranges of the steps of one part, which are counted from its ``origin``."""
    size = arithmetic.keys_per_step
    for a in range(low - (low - origin) % size, high, size):
        yield max(a, low), min(a + size, high)


class _Walker:
    """Carries the per-key results while the parts are walked."""

    def __init__(
        self, group: RowGroup, arithmetic: Arithmetic, first: int, x: Tensor, m: Tensor,
        delta: Tensor,
    ) -> None:  # fmt: skip
        self.group, self.rule, self.first = group, arithmetic, first
        self.x, self.m, self.delta = x, m, delta
        self.chain = chain_rule(arithmetic.value_chain, arithmetic)
        self.rounding, self.key_variance = torch.zeros_like(x), torch.zeros_like(x)

    def part(self, low: int, high: int, origin: int) -> Part:
        rows, width = len(self.group.index), self.group.v.shape[1]
        m = self.x.new_full((rows,), -torch.inf)
        part = Part(m, Accumulated.zeros(self.x.new_zeros(rows, width)), Mass.zeros(m), (low, high))
        for a, b in _steps(self.rule, low, high, origin):
            part = self._step(part, a, b)
        return part

    def _step(self, part: Part, a: int, b: int) -> Part:
        columns = slice(a - self.first, b - self.first)
        x = self.x[:, columns]
        own = x.amax(1)
        m = torch.maximum(part.m, own)
        base = _finite(own if self.rule.base == "step" else m)
        p = torch.exp(x - base[:, None])
        operands, variance = self._rounded(p, x, base, self.delta[:, columns])
        rescale = torch.exp(base - self.m)[:, None]
        self.key_variance[:, columns] = variance * rescale**2
        if self.rule.base == "unknown":  # the smallest p that any base up to m can give
            p_least = torch.exp(x - self.m[:, None])
            self.rounding[:, columns] = _rounding_bound(self.rule, p_least)
        else:
            self.rounding[:, columns] = _rounding_bound(self.rule, p) * rescale
        alpha = torch.exp(part.m - _finite(m))
        beta = torch.exp(own - _finite(m)) if self.rule.base == "step" else torch.ones_like(m)
        mass = self._mass(p, operands).scale(beta, rounded=beta != 1)
        old = part.mass.scale(alpha, rounded=alpha != 1)
        total = self._values(part, operands, a, b, alpha, beta)
        return Part(m, total, old.add(mass), part.keys)

    def _values(
        self, part: Part, operands: list[Tensor], a: int, b: int, alpha: Tensor, beta: Tensor
    ) -> Accumulated:
        v, _ = values(self.group, a, b)
        old = part.values.scale(alpha, rounded=alpha != 1)
        blocks = self.rule.accumulate == "blocks"
        total = Accumulated.zeros(old.total) if blocks else old
        for operand in operands:
            total = accumulate(operand, v, total, self.chain)
        return old.add(total.scale(beta, rounded=beta != 1)) if blocks else total

    def _mass(self, p: Tensor, operands: list[Tensor]) -> Mass:
        """Sum of one step: any order inside a tile, then one addition a tile."""
        rounded, unrounded = sum(operands[1:], operands[0]).sum(1), p.sum(1)
        declared, other = rounded, unrounded
        if self.rule.mass == "unrounded":
            declared, other = unrounded, rounded
        additions = min(self.rule.tile, p.shape[1]) - 1 + -(-p.shape[1] // self.rule.tile)
        return Mass(declared, other, additions * U * declared, additions * (U * declared) ** 2 / 3)

    def _rounded(
        self, p: Tensor, x: Tensor, base: Tensor, delta: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Expected operands of P V, and the variance about them, [rows, keys]."""
        rule, doubt = self.rule, p * delta / 2
        if rule.probability == "float32":
            return [p], torch.zeros_like(p)
        if rule.base == "unknown":
            unit = get_format(rule.probability).mantissa_bits + 1
            return [p], rule.roundings * (2.0**-unit * p) ** 2 / 3  # uniform, spacing <= 2 units
        if rule.roundings == 2:
            return self._rounded_twice(p, x, base, doubt)
        mean, variance = round_in_doubt(p, doubt, rule.probability)
        if rule.parts == 1:
            return [mean], variance
        high = round_in_doubt(p, torch.zeros_like(p), rule.probability)[0]
        low = p - high
        return [high, low], _ulp(low, rule.probability) ** 2 / 12

    def _rounded_twice(
        self, p: Tensor, x: Tensor, base: Tensor, doubt: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        means, variances = [], []
        for low in range(0, p.shape[1], self.rule.tile):
            columns = slice(low, low + self.rule.tile)
            own = _finite(x[:, columns].amax(1))[:, None]
            factor = torch.exp((own - base[:, None]).clamp_max(0.0))
            once = torch.exp(x[:, columns] - own)
            share = doubt[:, columns] / factor.clamp_min(1e-300)
            mean, variance = round_in_doubt(once, share, self.rule.probability)
            again, more = round_in_doubt(mean * factor, doubt[:, columns], self.rule.probability)
            means.append(again)
            variances.append(variance * factor**2 + more)
        return [torch.cat(means, dim=1)], torch.cat(variances, dim=1)


def round_in_doubt(p: Tensor, doubt: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Mean and variance of rounding p + noise to nearest, noise normal with deviation ``doubt``.

    Far from a midpoint the mean is the rounded p and the variance 0.
    """
    ulp = _ulp(p, name)
    low = (p / ulp).floor() * ulp
    above = torch.special.ndtr((p - low - ulp / 2) / doubt.clamp_min(1e-40))
    return low + ulp * above, ulp**2 * above * (1 - above)


def _ulp(p: Tensor, name: str) -> Tensor:
    fmt = get_format(name)
    return power_of_two(p).clamp_min(2.0**fmt.min_exponent) * 2.0**-fmt.mantissa_bits


def _rounding_bound(rule: Arithmetic, p: Tensor) -> Tensor:
    """How far P can be from p: half an ulp, relative for normals, absolute below."""
    if rule.probability == "float32":
        return torch.zeros_like(p)
    fmt = get_format(rule.probability)
    unit, smallest = 2.0 ** -(fmt.mantissa_bits + 1), 2.0**fmt.min_exponent
    relative, reach = unit, 1.0
    if rule.parts == 2:  # the low part is at most unit * p, so it is subnormal much earlier
        relative, reach = unit**2, unit
    below = (p > 0) & (p * reach < smallest)
    once = torch.where(below, p * 0 + unit * smallest, 0.0) + relative * p
    return once * (rule.roundings + (rule.roundings - 1) * unit)


def _finite(m: Tensor) -> Tensor:
    return m.masked_fill(torch.isneginf(m), 0.0)
