"""Replay of one attention kernel: every declared rounding, in the declared order.

The result is what the kernel must produce bit for bit, except for the exponential, which is one
admissible function (see ``exponential``) and not the device's. Runs on the CPU in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.reference.attention.inputs import (
    AttentionInputs,
    Row,
    RowGroup,
    check_rows,
    row_groups,
)
from verify.reference.replay.arithmetic import Arithmetic
from verify.reference.replay.chains import Float32, multiply, operand_words, round_to
from verify.reference.replay.exponential import Exponential

_ROWS = 64  # rows replayed together


@dataclass(frozen=True, eq=False)
class Replayed:
    """Leading axis: the rows, in the order asked for."""

    rows: tuple[Row, ...]
    output: NDArray[np.float64]
    """[rows, value_dim], on the grid of the declared output format."""
    unrounded: Float32
    """[rows, value_dim], FP32, before the final rounding."""
    m: Float32
    """[rows], largest score, natural log; -inf without keys."""
    l: Float32
    """[rows], the mass relative to m."""


@dataclass(eq=False)
class PartState:
    """(m, l, acc) of one part while it is walked; float32."""

    m: Float32
    l: Float32
    acc: Float32


@dataclass(frozen=True, eq=False)
class Step:
    """One online-softmax step as it was carried out; for observers.

    part: index of the part; start, stop: keys. x: [rows, keys] scores. base: [rows], what P is
    relative to. p: FP32 probabilities. operands: the one or two rounded parts of P. alpha: factor
    of the old state, beta of the new block. before, after: state around the step.
    """

    part: int
    start: int
    stop: int
    x: Float32
    base: Float32
    p: Float32
    operands: list[Float32]
    alpha: Float32
    beta: Float32
    before: PartState
    after: PartState


Observer = Callable[[RowGroup, Step], None]


def declared_inputs(inputs: AttentionInputs, arithmetic: Arithmetic) -> AttentionInputs:
    """The operands that enter the products: with ``scale_fold`` "before", cache codes times their
    scale, one FP32 multiply and one rounding to the operand format; scales are 1 then."""
    if arithmetic.scale_fold == "after" or inputs.k_scale == inputs.v_scale == 1.0:
        return inputs
    dtype = torch.bfloat16 if arithmetic.operands == "bfloat16" else torch.float16
    k, v = (
        (codes.float() * torch.tensor(scale, dtype=torch.float32, device=codes.device)).to(dtype)
        for codes, scale in ((inputs.k, inputs.k_scale), (inputs.v, inputs.v_scale))
    )
    return replace(inputs, k=k, v=v, k_scale=1.0, v_scale=1.0, scale=inputs.softmax_scale)


def replay(
    inputs: AttentionInputs,
    arithmetic: Arithmetic,
    rows: Sequence[Row] | None = None,
    *,
    exponential: Exponential | None = None,
    observe: Observer | None = None,
) -> Replayed:
    """The output of ``arithmetic`` on ``inputs`` for the chosen rows (all if None).

    Args:
        exponential: nearest if None, with the error that ``arithmetic`` states.
        observe: called after each step with the group of rows and what was done.

    Raises:
        ArgumentError: a base that is not known; operands that are not on the grid of the declared
            operand format; a row outside of q.
    """
    if arithmetic.base == "unknown":
        raise ArgumentError(
            "an arithmetic that is not fully declared cannot be replayed", where="base",
            found="unknown", allowed="running or step",
        )  # fmt: skip
    ex2 = Exponential("nearest", arithmetic.exp_error) if exponential is None else exponential
    chosen = check_rows(inputs, rows)
    shape = (len(chosen), inputs.v.shape[3])
    unrounded, m, mass = (np.zeros(s, np.float32) for s in (shape, shape[:1], shape[:1]))
    ranges = arithmetic.ranges(inputs)
    for group in row_groups(declared_inputs(inputs, arithmetic), chosen, limit=_ROWS):
        walk = _Walk(group, arithmetic, ex2, observe)
        states = [walk.part(index, *keys) for index, keys in enumerate(ranges)]
        state = walk.merge(states)
        unrounded[group.index] = walk.finish(state)
        m[group.index], mass[group.index] = state.m, state.l
    output = round_to(unrounded, arithmetic.output).astype(np.float64)
    return Replayed(tuple(chosen), output, unrounded, m, mass)


class _Walk:
    """The rows of one group through all parts."""

    def __init__(
        self, group: RowGroup, arithmetic: Arithmetic, ex2: Exponential, observe: Observer | None
    ) -> None:
        self.group, self.arithmetic, self.ex2, self.observe = group, arithmetic, ex2, observe
        self.q = self._operands(group.q.cpu().numpy(), arithmetic.score_chain.kind, "q")
        self.scale = np.float32(group.scale)

    def part(self, index: int, start: int, stop: int) -> PartState:
        """State of the keys [start, stop); steps that no row sees leave it as it is."""
        rows, width = len(self.group.index), self.group.v.shape[1]
        state = PartState(np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32),
                          np.zeros((rows, width), np.float32))  # fmt: skip
        size = self.arithmetic.keys_per_step
        first, last = self.group.span
        for low in range(start, stop, size):
            high = min(low + size, stop)
            if low < last and high > first:
                state = self._step(state, index, low, high)
        return state

    def merge(self, states: list[PartState]) -> PartState:
        """M = max m_i, then acc = fl(acc + fl(acc_i e^(m_i - M))) in ascending order, l alike."""
        top = np.max([state.m for state in states], axis=0)
        base = _finite_base(top)
        mass, acc = np.zeros_like(states[0].l), np.zeros_like(states[0].acc)
        for state in states:
            weight = self.ex2.exp(state.m - base)
            mass = mass + state.l * weight
            acc = acc + state.acc * weight[:, None]
        return PartState(top, mass, acc)

    def finish(self, state: PartState) -> Float32:
        """The sink's mass, one division, ``v_scale``; rows without keys give 0."""
        m, mass, acc = state.m, state.l, state.acc
        if self.group.sink is not None:
            sink = self.group.sink.cpu().numpy().astype(np.float32)
            top = np.maximum(m, sink)
            alpha = self.ex2.exp(m - top)
            mass = mass * alpha + self.ex2.exp(sink - top)
            acc = acc * alpha[:, None]
        total = np.where(mass == 0, np.float32(1), mass)
        output: Float32 = np.multiply(acc / total[:, None], np.float32(self.group.v_scale))
        return output

    def _step(self, state: PartState, part: int, low: int, high: int) -> PartState:
        rule = self.arithmetic
        x = self._scores(low, high)
        own = x.max(axis=1)
        m = np.maximum(state.m, own)
        base = _finite_base(own if rule.base == "step" else m)
        p, operands = probabilities(x, base, rule, self.ex2)
        alpha = self.ex2.exp(state.m - _finite_base(m))
        beta = np.ones_like(alpha)
        mass = _tree_sum(p if rule.mass == "unrounded" else whole(operands))
        if rule.base == "step":
            beta = self.ex2.exp(own - _finite_base(m))
            mass = mass * beta
        acc = round_to(state.acc * alpha[:, None], rule.value_chain.output)
        if rule.accumulate == "chain":
            acc = self._values(operands, acc, low, high)
        else:
            acc = acc + self._values(operands, None, low, high) * beta[:, None]
        after = PartState(m, state.l * alpha + mass, acc)
        if self.observe is not None:
            step = Step(part, low, high, x, base, p, operands, alpha, beta, state, after)
            self.observe(self.group, step)
        return after

    def _scores(self, low: int, high: int) -> Float32:
        chain = self.arithmetic.score_chain
        k = self._operands(live(self.group, self.group.k, low, high), chain.kind, "k")
        x = multiply(self.q, k.T, None, chain, self.arithmetic.operands) * self.scale
        if self.group.softcap is not None:
            cap = np.float32(self.group.softcap)
            x = np.tanh((x / cap).astype(np.float64)).astype(np.float32) * cap
        hidden = self.group.hidden(low, high).cpu().numpy()
        return np.where(hidden, np.float32(-np.inf), x)

    def _values(self, operands: list[Float32], acc: Float32 | None, low: int, high: int) -> Float32:
        chain = self.arithmetic.value_chain
        v = self._operands(live(self.group, self.group.v, low, high), chain.kind, "v")
        for part in operands:
            a = self._operands(part, chain.kind, "p")
            acc = multiply(a, v, acc, chain, self.arithmetic.operands)
        assert acc is not None  # operands is never empty
        return acc

    def _operands(self, values: NDArray[Any], kind: str, where: str) -> NDArray[Any]:
        return values if kind == "fma" else operand_words(values, self.arithmetic.operands, where)


def probabilities(
    x: Float32, base: Float32, rule: Arithmetic, ex2: Exponential
) -> tuple[Float32, list[Float32]]:
    """FP32 p of the scores x [rows, keys] relative to ``base`` [rows], and the rounded parts of P,
    whose sum enters P V."""
    p = ex2.exp(x - base[:, None])
    if rule.roundings == 2:
        return p, [_rounded_twice(x, base, rule, ex2)]
    high = round_to(p, rule.probability)
    if rule.parts == 1:
        return p, [high]
    return p, [high, round_to(p - high, rule.probability)]


def _rounded_twice(x: Float32, base: Float32, rule: Arithmetic, ex2: Exponential) -> Float32:
    parts = []
    for low in range(0, x.shape[1], rule.tile):
        tile = x[:, low : low + rule.tile]
        own = _finite_base(tile.max(axis=1))
        p = round_to(ex2.exp(tile - own[:, None]), rule.probability)
        factor = ex2.exp(np.minimum(own - base, 0))
        parts.append(round_to(p * factor[:, None], rule.probability))
    return np.concatenate(parts, axis=1)


def live(group: RowGroup, cache: torch.Tensor, low: int, high: int) -> NDArray[np.float64]:
    """[high - low, dim]: keys or values as they enter the products: 0 in slots no row sees, since
    a kernel must not read what they hold."""
    values: NDArray[np.float64] = cache[low:high].double().cpu().numpy()
    first, last = group.span
    values[: max(0, first - low)] = 0.0
    values[max(0, last - low) :] = 0.0
    return values


def _finite_base(m: Float32) -> Float32:
    """-inf - (-inf) must not become NaN: rows that saw nothing yet subtract 0."""
    return np.where(np.isneginf(m), np.float32(0), m)


def whole(operands: list[Float32]) -> Float32:
    """P as it enters the product: the sum of its parts."""
    total = operands[0]
    for part in operands[1:]:
        total = total + part  # high + low has at most 23 bits: exact
    return total


def _tree_sum(p: Float32) -> Float32:
    """[rows]: sum over the keys of a step as a balanced tree, halves added elementwise."""
    width = 1 << max(0, (p.shape[1] - 1).bit_length())
    tree = np.zeros((p.shape[0], width), np.float32)
    tree[:, : p.shape[1]] = p
    while tree.shape[1] > 1:
        half = tree.shape[1] // 2
        tree = tree[:, :half] + tree[:, half:]
    return tree[:, 0]
