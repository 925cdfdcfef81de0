"""Innocent variants: other ways to compute the same, of which none may be blamed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from verify.selftest.inject import changed_module
from verify.selftest.subject import Planted, Setup, nothing_planted


@dataclass(frozen=True, slots=True)
class Innocent:
    """A pair of setups that differ in how, not in what, they compute."""

    name: str
    a: Setup
    b: Setup
    planted: Planted = nothing_planted


def split_sums(parts: int) -> Planted:
    """Every linear layer sums its products in ``parts`` pieces, in float32, and adds them up."""

    @contextmanager
    def plant(model: Any) -> Iterator[None]:
        import torch

        with ExitStack() as stack:
            for module in model.modules():
                if isinstance(module, torch.nn.Linear) and module.in_features >= parts:
                    stack.enter_context(changed_module(module, _in_parts(module, parts)))
            yield

    return plant


def _in_parts(module: Any, parts: int) -> Any:
    def summed(x: Any, out: Any) -> Any:
        pieces = zip(
            x.float().tensor_split(parts, -1), module.weight.float().tensor_split(parts, -1),
            strict=True,
        )  # fmt: skip
        total = sum(a @ b.T for a, b in pieces)
        return (total if module.bias is None else total + module.bias.float()).to(out.dtype)

    return summed


@contextmanager
def reordered_norms(model: Any) -> Iterator[None]:
    """Every norm sums its squares in another order and divides by the root."""
    with ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "variance_epsilon"):
                stack.enter_context(changed_module(module, _other_norm(module)))
        yield


def _other_norm(module: Any) -> Any:
    def norm(x: Any, out: Any) -> Any:
        wide = x.float()
        squares = wide.flip(-1).pow(2).unflatten(-1, (4, -1)).sum(-1).sum(-1, keepdim=True)
        root = (squares / x.shape[-1] + module.variance_epsilon).sqrt()
        return module.weight * (wide / root).to(x.dtype)

    return norm


def draw(number: int, seed: int) -> Innocent:
    """The ``number``-th innocent pair: every kind in turn, its parameters drawn."""
    pick = random.Random(f"innocent {seed} {number}")
    a = Setup(dtype=pick.choice(("bf16", "bf16", "fp32", "fp16")))
    chunk = pick.randrange(3, 20)
    kinds = (
        Innocent("eager against sdpa", a, replace(a, attn="eager")),
        Innocent(f"prompt in chunks of {chunk}", a, replace(a, chunk=chunk)),
        Innocent("sums in parts", a, a, split_sums(pick.choice((2, 3, 4, 8)))),
        Innocent("norms in another order", a, a, reordered_norms),
        Innocent("a batch of two", a, replace(a, batch=2)),
        Innocent("two threads", a, replace(a, threads=2)),
        Innocent("eager and in chunks", a, replace(a, attn="eager", chunk=chunk)),
        Innocent("eager, sums in parts", a, replace(a, attn="eager"), split_sums(2)),
        Innocent("a repeat", a, a),
    )
    return kinds[number % len(kinds)]
