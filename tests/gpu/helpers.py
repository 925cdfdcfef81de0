"""Inputs and comparisons that the kernel tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.reference.attention import AttentionInputs, Row, attend

DIM = 256
SENTINEL = 12345.0  # exact in float16, never a result of these tests


@dataclass(frozen=True, eq=False)
class Problem:
    """q [1, Q, heads, 256], k and v [1, KV, key heads, 256], float16."""

    q: Tensor
    k: Tensor
    v: Tensor

    @property
    def prefix(self) -> int:
        return self.k.shape[1] - self.q.shape[1]


def make_problem(
    queries: int,
    keys: int,
    kind: str = "zero_mean",
    heads: tuple[int, int] = (6, 1),
    seed: int = 0,
) -> Problem:
    """A prefill problem on the GPU; ``kind`` names the data."""
    random = torch.Generator("cuda").manual_seed(seed)

    def normal(tokens: int, count: int) -> Tensor:
        return torch.randn(1, tokens, count, DIM, generator=random, device="cuda")

    q, k, v = normal(queries, heads[0]), normal(keys, heads[1]), normal(keys, heads[1])
    if kind == "biased":
        v = v + 1.0
    elif kind == "spiked":  # few keys and few channels far above the rest
        k[:, :: max(1, keys // 7)] *= 6.0
        v[..., 5] *= 100.0
    elif kind == "near_overflow":  # sums of products beyond FP16: 64 keys of 60000
        v = (v * 2000.0 + 50000.0).clamp(-65000.0, 65000.0)
    elif kind == "large_scores":  # a true maximum far below zero in many tiles
        q, k = q * 8.0, k * 8.0 - 8.0
    elif kind != "zero_mean":
        raise ValueError(kind)
    return Problem(q.half(), k.half(), v.half())


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal as raw words: NaN equals the same NaN, -0 differs from +0."""
    return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


@dataclass(frozen=True)
class Accuracy:
    error: float  # ||out - exact|| / ||exact||
    floor: float  # ||round(exact) - exact|| / ||exact||

    @property
    def ratio(self) -> float:
        return self.error / self.floor


def measure(actual: Tensor, exact: Tensor) -> Accuracy:
    """Errors of a float16 ``actual`` against a float64 ``exact`` of the same shape."""
    norm = exact.norm()
    error, floor = actual.double() - exact, exact.half().double() - exact
    return Accuracy(float(error.norm() / norm), float(floor.norm() / norm))


def prefill_accuracy(out: Tensor, problem: Problem, rows: int, seed: int = 0) -> Accuracy:
    """Accuracy of ``rows`` random rows of each head against the FP64 reference."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randperm(problem.q.shape[1], generator=random)[:rows].tolist()
    chosen = [Row(0, token, head) for token in tokens for head in range(problem.q.shape[2])]
    inputs = AttentionInputs(problem.q, problem.k, problem.v, scale=1.0 / 16.0)
    exact = attend(inputs, chosen, exact_spread=False).output
    actual = torch.stack([out[row.batch, row.token, row.head] for row in chosen])
    return measure(actual, exact)


@contextmanager
def guarded(shape: tuple[int, ...], fill: float, dtype: torch.dtype) -> Iterator[Tensor]:
    """A tensor inside a larger allocation full of ``fill``, whose surroundings must not change."""
    count, margin = int(torch.Size(shape).numel()), 4096
    store = torch.full((count + 2 * margin,), fill, dtype=dtype, device="cuda")
    yield store[margin : margin + count].view(shape)
    edges = torch.cat([store[:margin], store[margin + count :]])
    assert same_bits(edges, torch.full_like(edges, fill)), "memory outside the tensor was written"


def surrounded_by_nan(tensor: Tensor) -> Tensor:
    """A copy of ``tensor`` whose neighbours in memory are NaN, as a reader past its end would see."""
    margin = 8192
    store = torch.full((tensor.numel() + 2 * margin,), torch.nan, dtype=tensor.dtype, device="cuda")
    inner = store[margin : margin + tensor.numel()].view(tensor.shape)
    inner.copy_(tensor)
    return inner
