"""C0: inputs whose correct output is one bit pattern, in any order and on any hardware.

* ``zero query``: q = 0, so every p is ex2(0) = 1. Integer values with sums below 2^24 add up
  exactly in any order, and a power-of-two number of keys divides exactly.
* ``constant value``: q = 0 and one value per column: n c / n, whatever n a causal row sees.
  Division or reciprocal err by a few 2^-24, far from the next rounding boundary of the output.
* ``planted key``: one key at least 64 powers of two ahead, so l = 1 exactly and the output is its
  value row, bit for bit. Planted at every edge where an index can be off by one.
* ``dead slots``: keys and values beyond the live length hold NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.bounds import Bound
from verify.errors import ArgumentError
from verify.reference.attention.inputs import AttentionInputs
from verify.reference.certificates.result import Check
from verify.reference.replay.arithmetic import Arithmetic

PLANTED_LEAD = 64
"""Powers of two by which a planted key leads; 2^18 others then add less than 2^-46 to l = 1."""


@dataclass(frozen=True)
class Shape:
    """Sizes of q [batch, tokens_q, heads_q, head_dim] and of the cache."""

    batch: int
    tokens_q: int
    tokens_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int

    def zeros(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of zeros, FP16."""
        query = torch.zeros(self.batch, self.tokens_q, self.heads_q, self.head_dim)
        cache = torch.zeros(self.batch, self.tokens_kv, self.heads_kv, self.head_dim)
        return query.half(), cache.half(), cache.half()


@dataclass(frozen=True, eq=False)
class ExactCase:
    """A problem and its only correct output.

    expected: [batch, tokens_q, heads_q, head_dim], FP16; why: the argument for it.
    """

    name: str
    inputs: AttentionInputs
    expected: Tensor
    why: str


def check_exact(case: ExactCase, actual: Tensor) -> Check:
    """Bit-for-bit comparison (-0 and +0 count as equal); any difference is a defect.

    Raises:
        ArgumentError: ``actual`` of another shape.
    """
    if actual.shape != case.expected.shape:
        raise ArgumentError(
            "the output does not fit the case", where=case.name, found=list(actual.shape),
            allowed=list(case.expected.shape),
        )  # fmt: skip
    wrong = ~(actual.double().cpu() == case.expected.double())
    count = int(wrong.sum())
    first = tuple(wrong.nonzero()[0].tolist()) if count else ()
    return Check(
        name=f"exact case (C0): {case.name}",
        statistic=float(count),
        limit=Bound(0.0, case.why),
        passed=count == 0,
        detail=f"first at [batch, token, head, element] {list(first)}" if count else "",
    )


def exact_cases(
    shape: Shape, arithmetic: Arithmetic, *, causal: bool = True, seed: int = 0
) -> Iterator[ExactCase]:
    """All cases of a shape, with keys planted at the edges of ``arithmetic``'s tiles and parts."""
    yield zero_query(shape, seed=seed)
    yield constant_value(shape, causal=causal, seed=seed)
    for key in edge_keys(shape, arithmetic):
        yield planted_key(shape, key, causal=causal, seed=seed)
    for length in edge_lengths(shape, arithmetic):
        yield dead_slots(shape, length, seed=seed)


def zero_query(shape: Shape, *, seed: int = 0) -> ExactCase:
    """Mean of integers over a power-of-two number of live keys, not causal."""
    live = 1 << (shape.tokens_kv.bit_length() - 1)
    q, k, v = shape.zeros()
    generator = torch.Generator().manual_seed(seed)
    k.copy_(torch.randn(k.shape, generator=generator))  # q = 0 makes every score 0 all the same
    mean = torch.randint(-64, 65, v.shape[:1] + v.shape[2:], generator=generator) / 16.0
    spread = torch.randint(-8, 9, (v.shape[0], live, *v.shape[2:]), generator=generator)
    v[:, :live] = _with_mean(spread.double(), mean.double())
    inputs = AttentionInputs(q, k, v, causal=False, kv_lengths=(live,) * shape.batch)
    expected = _to_queries(mean.half(), shape)
    return ExactCase(
        f"zero query, {live} keys", inputs, expected,
        "p = 1 for every key, integer sums below 2^24, division by a power of two",
    )  # fmt: skip


def _with_mean(spread: Tensor, mean: Tensor) -> Tensor:
    """Integers along axis 1 that add up to ``mean`` times their number.

    With fewer than 16 keys the sum of sixteenths is no integer; values are sixteenths then, and
    their sums are exact all the same.
    """
    live = spread.shape[1]
    unit = 1.0 if live >= 16 else 16.0
    spread = spread / unit
    missing = mean * live - spread.sum(1)
    share = (missing * unit / live).floor() / unit
    spread = spread + share[:, None]
    rest = ((missing - share * live) * unit).round().long()
    steps = torch.arange(live).reshape(1, live, *[1] * (spread.dim() - 2)) < rest[:, None]
    return spread + steps / unit


def constant_value(shape: Shape, *, causal: bool = True, seed: int = 0) -> ExactCase:
    """Every key holds one value row per head; any number of keys averages to it."""
    q, k, v = shape.zeros()
    generator = torch.Generator().manual_seed(seed)
    k.copy_(torch.randn(k.shape, generator=generator))
    value = torch.randint(-15, 16, v.shape[:1] + v.shape[2:], generator=generator).half()
    v[:] = value[:, None]
    expected = _to_queries(value, shape)
    hidden = max(0, shape.tokens_q - shape.tokens_kv) if causal else 0
    expected[:, :hidden] = 0.0  # rows before the first key
    return ExactCase(
        "constant value", AttentionInputs(q, k, v, causal=causal), expected,
        "n equal integers over n: within a few 2^-24 of an FP16 number",
    )  # fmt: skip


def planted_key(
    shape: Shape, key: int, *, causal: bool = True, seed: int = 0, scale: float | None = None
) -> ExactCase:
    """One key that wins by 64 powers of two or more: every row that sees it returns its value.

    Rows that do not see it have equal scores, and values that are all zero but the planted one.

    Raises:
        ArgumentError: a key outside of the cache.
    """
    if not 0 <= key < shape.tokens_kv:
        raise ArgumentError(
            "no such key", where="key", found=key, allowed=f"0..{shape.tokens_kv - 1}"
        )
    q, k, v = shape.zeros()
    factor = shape.head_dim**-0.5 if scale is None else scale
    needed = PLANTED_LEAD * 0.6931471805599453 / factor  # of q . k, both entries powers of two
    q[..., 0] = 64.0
    k[:, key, :, 0] = 2.0 ** max(0, int(torch.tensor(needed / 64.0).log2().ceil()))
    generator = torch.Generator().manual_seed(seed)
    v[:, key] = torch.randn(v[:, key].shape, generator=generator).half()
    inputs = AttentionInputs(q, k, v, scale=scale, causal=causal)
    expected = _to_queries(v[:, key], shape)
    if causal:
        expected[:, : max(0, key - (shape.tokens_kv - shape.tokens_q))] = 0.0
    return ExactCase(
        f"planted key {key}", inputs, expected,
        f"all other p are below 2^-{PLANTED_LEAD}: l = 1, the output is one value row",
    )  # fmt: skip


def dead_slots(shape: Shape, length: int, *, seed: int = 0) -> ExactCase:
    """``length`` live keys, NaN behind them; length 0 gives zeros, length 1 the one value row."""
    base = constant_value(shape, causal=False, seed=seed)
    k, v = base.inputs.k.clone(), base.inputs.v.clone()
    k[:, length:], v[:, length:] = torch.nan, torch.nan
    inputs = AttentionInputs(
        base.inputs.q, k, v, causal=False, kv_lengths=(length,) * shape.batch
    )  # fmt: skip
    expected = base.expected if length else torch.zeros_like(base.expected)
    return ExactCase(
        f"dead slots behind {length} keys", inputs, expected,
        "slots beyond the live length must not be read into any sum",
    )  # fmt: skip


def edge_keys(shape: Shape, arithmetic: Arithmetic) -> list[int]:
    """First and last key, both sides of each tile edge (the first and the last few of them), of
    each part, and of the seam before the first query."""
    keys = shape.tokens_kv
    tiles = list(range(arithmetic.tile, keys, arithmetic.tile))
    edges = {*tiles[:3], *tiles[-3:], keys - shape.tokens_q}
    if arithmetic.partition_keys:
        edges |= set(range(arithmetic.partition_keys, keys, arithmetic.partition_keys))
    places = {0, keys - 1} | {edge + side for edge in edges for side in (-1, 0)}
    return sorted(place for place in places if 0 <= place < keys)


def edge_lengths(shape: Shape, arithmetic: Arithmetic) -> Sequence[int]:
    """Live lengths with parts that are empty, of one key, or cut inside a tile."""
    size = arithmetic.partition_keys or arithmetic.tile
    lengths = {0, 1, size - 1, size, size + 1, shape.tokens_kv - 1}
    return sorted(length for length in lengths if 0 <= length < shape.tokens_kv)


def _to_queries(row: Tensor, shape: Shape) -> Tensor:
    """[batch, heads_kv, dim] to [batch, tokens_q, heads_q, dim]."""
    heads = row.repeat_interleave(shape.heads_q // shape.heads_kv, dim=1)
    return heads[:, None].expand(-1, shape.tokens_q, -1, -1).clone()
