"""What ``prefill`` admits. Every call is checked against this before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.gpu.checks import (
    check_aligned,
    check_contiguous,
    check_device,
    check_dims,
    check_dtype,
)
from verify.gpu.errors import SemanticsError, ShapeError
from verify.gpu.table import head_groups

HEAD_DIM = 256
SCALE = 1.0 / 16.0
QUERY_STEP, MOST_QUERIES = 64, 8192
KEY_STEP, MOST_KEYS = 32, 262144
AXES = "1 tokens heads head_dim"


@dataclass(frozen=True, slots=True)
class PrefillShape:
    """Queries, keys and head counts of an admitted call."""

    queries: int
    keys: int
    query_heads: int
    key_heads: int

    def as_pairs(self) -> tuple[tuple[str, int], ...]:
        return (
            ("queries", self.queries),
            ("keys", self.keys),
            ("query_heads", self.query_heads),
            ("key_heads", self.key_heads),
        )


def check_semantics(scale: float, causal: bool) -> None:
    """Raise SemanticsError unless the call asks for causal attention with scale 1/16."""
    if not causal:
        raise SemanticsError("not causal", where="causal", found=causal, allowed=True)
    if scale != SCALE:
        raise SemanticsError("wrong scale", where="scale", found=scale, allowed="exactly 1/16")


def check_shape(q: Tensor, k: Tensor, v: Tensor) -> PrefillShape:
    """Shape, dtype and device rules; works on fake tensors too. Raises a KernelArgumentError."""
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        check_dims(name, tensor, AXES)
        check_dtype(name, tensor, torch.float16)
        if tensor.shape[0] != 1:
            raise ShapeError("wrong batch", where=name, found=tensor.shape[0], allowed=1)
        if tensor.shape[3] != HEAD_DIM:
            raise ShapeError("wrong head_dim", where=name, found=tensor.shape[3], allowed=HEAD_DIM)
    check_device({"q": q, "k": k, "v": v})
    if k.shape != v.shape:
        raise ShapeError("v is not shaped like k", found=tuple(v.shape), allowed=tuple(k.shape))
    shape = PrefillShape(q.shape[1], k.shape[1], q.shape[2], k.shape[2])
    _check_lengths(shape)
    return shape


def check_layout(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Contiguity and alignment of real tensors. Raises LayoutError."""
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        check_contiguous(name, tensor)
        check_aligned(name, tensor)


def _check_lengths(shape: PrefillShape) -> None:
    groups = head_groups()
    if (shape.query_heads, shape.key_heads) not in groups:
        raise ShapeError(
            "head counts outside the table",
            where="query heads, key heads",
            found=(shape.query_heads, shape.key_heads),
            allowed=", ".join(map(str, groups)),
        )
    if not QUERY_STEP <= shape.queries <= MOST_QUERIES or shape.queries % QUERY_STEP:
        raise ShapeError(
            "query length outside the table",
            where="q",
            found=shape.queries,
            allowed=f"{QUERY_STEP} to {MOST_QUERIES}, a multiple of {QUERY_STEP}",
            hint="prepend zero rows: verify.gpu.pad_queries",
        )
    if shape.keys <= shape.queries:
        raise ShapeError(
            "empty prefix",
            where="k",
            found=f"{shape.keys} keys for {shape.queries} queries",
            allowed="more keys than queries",
        )
    if shape.keys > MOST_KEYS or shape.keys % KEY_STEP:
        raise ShapeError(
            "key length outside the table",
            where="k",
            found=shape.keys,
            allowed=f"at most {MOST_KEYS}, a multiple of {KEY_STEP}",
        )


def pad_queries(q: Tensor) -> tuple[Tensor, int]:
    """Prepend zero rows until the length is a multiple of 64.

    A padded row i sees the keys <= KV - Qpad + i, so a real row still sees the same keys. Drop the
    first rows of the output: ``prefill(padded, k, v)[:, added:]``.

    Args:
        q: [1, tokens, heads, head_dim].

    Returns the padded tensor and how many rows were added.
    """
    check_dims("q", q, AXES)
    added = -q.shape[1] % QUERY_STEP
    if added == 0:
        return q, 0
    zeros = q.new_zeros((1, added, *q.shape[2:]))
    return torch.cat([zeros, q], dim=1), added
