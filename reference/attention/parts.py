"""The same attention in parts that are merged: split KV, prefix and tail, paged caches.

A second order of summation for the single pass of ``streaming``, and the exact meaning of a
partial state: ``(m, l, acc)`` with m the largest score of the part in natural-log units (the
softmax scale applied), ``l = sum exp(x_j - m)``, ``acc = sum exp(x_j - m) v_j``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from verify.errors import ArgumentError
from verify.reference.attention.inputs import (
    AttentionInputs,
    Row,
    RowGroup,
    check_rows,
    row_groups,
)
from verify.reference.attention.streaming import BLOCK, scores, values


@dataclass(frozen=True, eq=False)
class State:
    """Partial softmax of some keys: m [rows], l [rows], acc [rows, value_dim]; float64.

    An empty or fully masked part has m = -inf, l = 0, acc = 0 and leaves a merge as it is.
    """

    m: Tensor
    l: Tensor
    acc: Tensor


@dataclass(frozen=True, eq=False)
class Attended:
    """output [rows, value_dim] and lse [rows], float64."""

    output: Tensor
    lse: Tensor


def partial_state(group: RowGroup, start: int, stop: int, *, block: int = BLOCK) -> State:
    """State of the keys [start, stop), online over blocks. Non-finite values are not kept out."""
    shape = (len(group.index), group.v.shape[1])
    state = State(group.q.new_full(shape[:1], -torch.inf), group.q.new_zeros(shape[0]),
                  group.q.new_zeros(shape))  # fmt: skip
    for low in range(start, stop, block):
        high = min(low + block, stop)
        x = scores(group, low, high)
        m = x.amax(1)
        p = torch.exp(x - m.masked_fill(torch.isneginf(m), 0.0)[:, None])
        v, _ = values(group, low, high)
        state = merge_states([state, State(m, p.sum(1), p @ v)])
    return state


def merge_states(states: Sequence[State]) -> State:
    """M = max m_i; l = sum l_i e^(m_i - M), acc likewise.

    Raises:
        ArgumentError: no states.
    """
    if not states:
        raise ArgumentError("no states to merge", where="states", allowed="one or more")
    m = torch.stack([state.m for state in states]).amax(0)
    base = m.masked_fill(torch.isneginf(m), 0.0)
    factors = [torch.exp(state.m - base) for state in states]
    mass = torch.stack([f * s.l for f, s in zip(factors, states, strict=True)]).sum(0)
    acc = torch.stack([f[:, None] * s.acc for f, s in zip(factors, states, strict=True)]).sum(0)
    return State(m, mass, acc)


def finish(state: State, group: RowGroup) -> Attended:
    """Bring in the sink, divide by l, apply ``v_scale``. Rows without keys: output 0, lse -inf."""
    if group.sink is not None:
        sink = State(group.sink, torch.ones_like(group.sink), torch.zeros_like(state.acc))
        state = merge_states([state, sink])
    empty = state.l == 0
    output = state.acc / torch.where(empty, 1.0, state.l)[:, None] * group.v_scale
    lse = torch.where(empty, -torch.inf, state.m + torch.log(state.l))
    return Attended(output, lse)


def attend_split(
    inputs: AttentionInputs, boundaries: Sequence[int], rows: Sequence[Row] | None = None
) -> Attended:
    """Attention as separate states of the key ranges between ``boundaries``, then merged.

    Args:
        boundaries: ascending key positions strictly inside the cache; empty for a single part.

    Raises:
        ArgumentError: boundaries that are not ascending or outside the cache.
    """
    edges = [0, *boundaries, inputs.k.shape[1]]
    if any(low >= high for low, high in pairwise(edges)):
        raise ArgumentError(
            "split boundaries are not ascending key positions", where="boundaries",
            found=list(boundaries), allowed=f"ascending, from 1 to {edges[-1] - 1}",
        )  # fmt: skip
    chosen = check_rows(inputs, rows)
    output = inputs.q.new_zeros((len(chosen), inputs.v.shape[3]), dtype=torch.float64)
    lse = inputs.q.new_zeros(len(chosen), dtype=torch.float64)
    for group in row_groups(inputs, chosen):
        state = merge_states([partial_state(group, low, high) for low, high in pairwise(edges)])
        done = finish(state, group)
        output[group.index], lse[group.index] = done.output, done.lse
    return Attended(output, lse)


def attend_prefix_tail(inputs: AttentionInputs, rows: Sequence[Row] | None = None) -> Attended:
    """Attention as the keys before the first query (never masked) and the causal square behind.

    Raises:
        ArgumentError: no key before the first query, or kv_lengths given.
    """
    seam = inputs.k.shape[1] - inputs.q.shape[1]
    if seam < 1 or inputs.kv_lengths is not None:
        raise ArgumentError(
            "no prefix in front of the queries", where="k", found=f"{inputs.k.shape[1]} keys",
            allowed=f"more keys than the {inputs.q.shape[1]} queries, all of them live",
        )  # fmt: skip
    return attend_split(inputs, [seam], rows)


def gather_pages(cache: Tensor, block_table: Tensor, length: int) -> Tensor:
    """The first ``length`` positions of one sequence, contiguous: [length, heads_kv, dim].

    Args:
        cache: [blocks, page, heads_kv, dim], any strides.
        block_table: [max_blocks], integers: physical block of each logical page.

    Raises:
        ArgumentError: a length beyond the table, or a physical block outside of the cache.
    """
    page = cache.shape[1]
    used = block_table[: -(-length // page)].long()
    if length < 0 or length > page * block_table.shape[0]:
        raise ArgumentError(
            "length does not fit the block table", where="length", found=length,
            allowed=f"0..{page * block_table.shape[0]}",
        )  # fmt: skip
    if bool(((used < 0) | (used >= cache.shape[0])).any()):
        raise ArgumentError(
            "a physical block is outside of the cache", where="block_table", found=used.tolist(),
            allowed=f"0..{cache.shape[0] - 1}",
        )  # fmt: skip
    return cache[used].flatten(0, 1)[:length]


def paged_inputs(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Sequence[int],
    **constants: object,
) -> AttentionInputs:  # fmt: skip
    """The contiguous problem that a paged kernel solves: gathered, padded with NaN to one length.

    Padding holds NaN so that a reader of dead slots is caught. ``constants`` are those of
    ``AttentionInputs``; caches as in :func:`gather_pages`, block_table [batch, max_blocks].

    Raises:
        ArgumentError: see :func:`gather_pages` and ``AttentionInputs``.
    """
    longest = max([1, *lengths])
    padded = []
    for cache in (k_cache, v_cache):
        shape = (len(lengths), longest, *cache.shape[2:])
        full = cache.new_full(shape, torch.nan)
        for batch, length in enumerate(lengths):
            full[batch, :length] = gather_pages(cache, block_table[batch], length)
        padded.append(full)
    return AttentionInputs(
        q, padded[0], padded[1], kv_lengths=tuple(lengths), **constants  # type: ignore[arg-type]
    )  # fmt: skip


def attend_paged(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Sequence[int],
    **constants: object,
) -> Attended:  # fmt: skip
    """Attention over a paged cache, one state a page, merged in page order.

    Args as :func:`paged_inputs`.
    """
    inputs = paged_inputs(q, k_cache, v_cache, block_table, lengths, **constants)
    return attend_split(inputs, range(k_cache.shape[1], inputs.k.shape[1], k_cache.shape[1]))
