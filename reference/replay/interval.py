"""The interval in which a kernel's output must lie when its exponential is only known to an error.

One replay with the nearest exponential gives the centre. Everything that another admissible
exponential could change is then added up, at its worst, in the units of the current maximum:

* P: each probability lies between the roundings of p (1 - e) and p (1 + e); nearly all agree.
* alpha, beta and merge weights: relative e on what they multiply.
* accumulation: a chain that starts from other operands rounds elsewhere; each of the two chains is
  within its own error bound of its exact sum, so twice that bound (numerics: one fused step errs
  by at most (L 2^-F + 2^-23) X, X the largest of the accumulator and the products; FP32: 2^-24).

So membership is rigorous, given that ``exp_error`` holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.reference.attention.inputs import AttentionInputs, Row, RowGroup, check_rows
from verify.reference.replay.arithmetic import Arithmetic
from verify.reference.replay.attention import Replayed, Step, live, probabilities, replay, whole
from verify.reference.replay.chains import round_to
from verify.reference.replay.exponential import Exponential

Float64 = NDArray[np.float64]

_U = 2.0**-24
_FP16_MIN_NORMAL = 2.0**-14


@dataclass(frozen=True, eq=False)
class ReplayInterval:
    """low <= output <= high for every admissible exponential; [rows, value_dim], output format."""

    centre: Replayed
    low: Float64
    high: Float64
    radius: Float64
    """[rows, value_dim]: how far the unrounded result can lie from the centre's."""
    ambiguous: NDArray[np.int64]
    """[rows]: keys whose rounded probability depends on the exponential."""

    def contains(self, output: Float64) -> NDArray[np.bool_]:
        """[rows, value_dim]: which elements of ``output`` lie inside; NaN never does."""
        inside: NDArray[np.bool_] = (output >= self.low) & (output <= self.high)
        return inside


def replay_interval(
    inputs: AttentionInputs, arithmetic: Arithmetic, rows: Sequence[Row] | None = None
) -> ReplayInterval:
    """Centre and interval of ``arithmetic`` on ``inputs``.

    Raises:
        ArgumentError: as :func:`replay`; probabilities rounded twice, or a softcap, whose device
            functions have no interval here.
    """
    for where, found in (("roundings", arithmetic.roundings == 2), ("softcap", inputs.softcap)):
        if found:
            raise ArgumentError(
                "no interval for this arithmetic", where=where, allowed="roundings 1, no softcap",
                hint="replay() gives the centre alone",
            )  # fmt: skip
    chosen = check_rows(inputs, rows)
    watch = _Watch(arithmetic, len(chosen))
    centre = replay(inputs, arithmetic, chosen, observe=watch)
    radius = watch.radius(centre)
    low, high = (
        round_to(centre.unrounded.astype(np.float64) + sign * radius, arithmetic.output)
        for sign in (-1.0, 1.0)
    )
    return ReplayInterval(
        centre, low.astype(np.float64), high.astype(np.float64), radius, watch.ambiguous
    )


@dataclass(eq=False)
class _Slack:
    """What one part may be off, relative to its running maximum m: acc by ``acc``, l by ``mass``;
    ``size`` is sum P |v|, the largest that acc can get."""

    m: Float64
    mass_total: Float64
    acc: Float64
    mass: Float64
    size: Float64


class _Watch:
    """Observes a replay and adds up what another exponential could change."""

    def __init__(self, arithmetic: Arithmetic, rows: int) -> None:
        self.rule = arithmetic
        self.relative = arithmetic.exp_error + _U  # of the centre's ex2 against any other
        self.ends = [Exponential(kind, arithmetic.exp_error) for kind in ("low", "high")]
        self.parts: dict[tuple[int, int], _Slack] = {}
        self.groups: dict[int, RowGroup] = {}
        self.ambiguous = np.zeros(rows, np.int64)

    def __call__(self, group: RowGroup, step: Step) -> None:
        self.groups[group.index[0]] = group
        key = (group.index[0], step.part)
        shape = step.before.acc.shape
        old = self.parts.get(key) or _Slack(*(np.zeros(s) for s in (*[shape[:1]] * 2, shape,
                                                                   shape[:1], shape)))  # fmt: skip
        self.parts[key] = self._advance(old, group, step)

    def _advance(self, old: _Slack, group: RowGroup, step: Step) -> _Slack:
        alpha, beta = step.alpha.astype(np.float64), step.beta.astype(np.float64)
        rescaled = ((alpha != 1.0) & (alpha > 0.0)) * (self.relative + 2 * _U)
        joined = (beta != 1.0) * (self.relative + 2 * _U)
        moved, moved_mass = self._probability_slack(group, step)
        v = np.abs(live(group, group.v, step.start, step.stop))
        block = whole(step.operands).astype(np.float64) @ v
        size = old.size * alpha[:, None] + block * beta[:, None]
        acc = (old.acc + old.size * rescaled[:, None]) * alpha[:, None]
        acc += (moved @ v + joined[:, None] * block) * beta[:, None]
        acc += 2 * self._chain_slack(size, block, v, step.stop - step.start)
        levels = (step.stop - step.start).bit_length() + 2
        mass = old.mass * alpha + step.before.l * alpha * rescaled
        mass += (moved_mass + joined * step.after.l) * beta + 2 * _U * levels * step.after.l
        m = step.after.m.astype(np.float64)
        return _Slack(m, step.after.l.astype(np.float64), acc, mass, size)

    def _probability_slack(self, group: RowGroup, step: Step) -> tuple[Float64, Float64]:
        """[rows, keys]: how far each P can be from the centre's; [rows]: the mass likewise."""
        p_ends, ends = zip(
            *(probabilities(step.x, step.base, self.rule, ex2) for ex2 in self.ends), strict=True
        )
        low, high = (whole(parts).astype(np.float64) for parts in ends)
        centre = whole(step.operands).astype(np.float64)
        moved = np.maximum(high - centre, centre - low)
        if self.rule.probability != "float32":
            self.ambiguous[group.index] += (moved > 0).sum(axis=1)
        if self.rule.mass == "rounded":
            return moved, moved.sum(axis=1)
        return moved, (p_ends[1].astype(np.float64) - p_ends[0]).sum(axis=1)

    def _chain_slack(self, size: Float64, block: Float64, v: Float64, keys: int) -> Float64:
        """Error bound of one step's accumulation, [rows, value_dim]."""
        rule, chain = self.rule, self.rule.value_chain
        total = block if rule.accumulate == "blocks" else size
        added = 2 * _U * size if rule.accumulate == "blocks" else 0.0
        if chain.kind == "fma":
            return keys * _U * total + added
        unit = chain.unit(rule.operands)
        # A product's exponent is that of its operands as stored, subnormals pinned: up to
        # max(P, 2^-14) max(|v|, 2^-14), and P <= 1.
        product = np.maximum(v.max(axis=0), _FP16_MIN_NORMAL)
        largest = np.maximum(total * (1 + 2.0**-9), product)
        final = 2.0**-11 if chain.output == "float16" else 2.0**-23
        steps = -(-keys // unit.products) * rule.parts
        slack = steps * (unit.products * 2.0**-unit.fraction_bits + final) * largest + added
        return np.asarray(slack, dtype=np.float64)

    def radius(self, centre: Replayed) -> Float64:
        """[rows, value_dim]: parts merged, divided, with the last FP32 roundings."""
        radius = np.zeros(centre.unrounded.shape)
        for first, group in self.groups.items():
            radius[group.index] = self._group_radius(first, group, centre)
        return radius + 8 * _U * np.abs(centre.unrounded.astype(np.float64))

    def _group_radius(self, first: int, group: RowGroup, centre: Replayed) -> Float64:
        states = [slack for key, slack in self.parts.items() if key[0] == first]
        top = np.max([state.m for state in states], axis=0)
        loose = (self.relative + 4 * _U * len(states)) * (len(states) > 1)
        acc, mass, total = np.zeros_like(states[0].acc), np.zeros_like(top), np.zeros_like(top)
        for state in states:
            weight = np.exp(np.where(np.isneginf(top), 0.0, state.m - top))
            acc += weight[:, None] * (state.acc + loose * state.size)
            mass += weight * (state.mass + loose * state.mass_total)
            total += weight * state.mass_total
        if group.sink is not None:
            sink = np.exp(group.sink.cpu().numpy() - top)
            mass, total = mass + 2 * self.relative * (sink + total), total + sink
            acc += 2 * self.relative * sum(s.size for s in states)
        o = np.abs(centre.unrounded[group.index].astype(np.float64))
        safe = np.where(total == 0, 1.0, total)[:, None]
        radius: Float64 = (acc * group.v_scale + o * mass[:, None]) / safe
        return radius
