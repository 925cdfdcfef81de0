"""What an attention kernel was given, checked once, and cut into rows that share their keys.

Every reference of this package starts here, so they all agree on shapes, masks and scales and on
nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from verify.errors import ArgumentError


class Row(NamedTuple):
    """One query row: ``q[batch, token, head]``."""

    batch: int
    token: int
    head: int


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """The same rounded tensors that the kernel saw, and the constants it was given.

    Args:
        q: [batch, tokens_q, heads_q, head_dim], any float dtype.
        k: [batch, tokens_kv, heads_kv, head_dim], any float dtype.
        v: [batch, tokens_kv, heads_kv, value_dim], any float dtype.
        scale: factor of q . k before softcap and softmax (natural log); 1/sqrt(head_dim) if None.
        causal: lower-right: query row i of tokens_q sees keys <= kv_length - tokens_q + i.
        window: a row sees at most this many keys, its own included; needs ``causal``.
        softcap: scores become ``softcap * tanh(score / softcap)``.
        sinks: [heads_q], logits (natural log, after the scale) of a key whose value is zero.
        k_scale, v_scale: factors of a quantised cache; k and v then hold the decoded codes.
        kv_lengths: live keys of each batch entry, 0 allowed; all of tokens_kv if None.

    Raises:
        ArgumentError: shapes that do not fit, an empty dimension, heads_q not a multiple of
            heads_kv, mixed devices, a scale that is not finite, a window or softcap below its
            range, a length outside the cache.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float | None = None
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    k_scale: float = 1.0
    v_scale: float = 1.0
    kv_lengths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_tensors(self)
        _check_constants(self)

    @property
    def softmax_scale(self) -> float:
        """The factor of q . k, without the cache's ``k_scale``."""
        return 1.0 / math.sqrt(self.q.shape[3]) if self.scale is None else self.scale

    @property
    def group_size(self) -> int:
        return self.q.shape[2] // self.k.shape[2]

    def length(self, batch: int) -> int:
        """Live keys of one batch entry."""
        return self.k.shape[1] if self.kv_lengths is None else self.kv_lengths[batch]

    def visible(self, row: Row) -> tuple[int, int]:
        """The keys ``[first, last)`` that a row sees; equal where it sees none."""
        length = self.length(row.batch)
        last = length - self.q.shape[1] + row.token + 1 if self.causal else length
        last = max(0, last)
        first = 0 if self.window is None else max(0, last - self.window)
        return first, last

    def all_rows(self) -> list[Row]:
        """Every row, heads innermost."""
        batch, tokens, heads, _ = self.q.shape
        return [Row(b, t, h) for b in range(batch) for t in range(tokens) for h in range(heads)]


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Rows that read the same keys and values; what a reference works on.

    Args:
        index: place of each row in the list of rows that was asked for.
        q: [rows, head_dim], float64.
        k: [keys, head_dim], v: [keys, value_dim]: views in the dtype they were given in.
        first, last: [rows], int64: the visible keys [first, last) of each row.
        scale: factor of q . k, ``k_scale`` included.
        sink: [rows], float64, or None.
    """

    index: list[int]
    q: Tensor
    k: Tensor
    v: Tensor
    first: Tensor
    last: Tensor
    scale: float
    v_scale: float
    softcap: float | None
    sink: Tensor | None

    @property
    def span(self) -> tuple[int, int]:
        """Keys outside of this range are seen by no row."""
        if not self.seen:
            return 0, 0
        used = self.last > self.first
        return int(self.first[used].min()), int(self.last[used].max())

    @property
    def seen(self) -> bool:
        return bool((self.last > self.first).any())

    def hidden(self, start: int, stop: int) -> Tensor:
        """[rows, stop - start], bool: True where the row does not see the key."""
        keys = torch.arange(start, stop, device=self.q.device)
        return (keys < self.first[:, None]) | (keys >= self.last[:, None])


def check_rows(inputs: AttentionInputs, rows: Sequence[Row] | None) -> list[Row]:
    """The rows asked for, all of them if None.

    Raises:
        ArgumentError: no rows, or one outside of q.
    """
    if rows is None:
        return inputs.all_rows()
    limits = inputs.q.shape[:3]
    for row in rows:
        if len(row) != 3 or not all(0 <= x < n for x, n in zip(row, limits, strict=True)):
            raise ArgumentError(
                "no such query row", where="rows", found=tuple(row),
                allowed=f"(batch, token, head) below {tuple(limits)}",
            )  # fmt: skip
    if not rows:
        raise ArgumentError("no query rows to compute", where="rows", allowed="one or more rows")
    return [Row(*row) for row in rows]


def row_groups(
    inputs: AttentionInputs, rows: Sequence[Row], *, limit: int = 256
) -> Iterator[RowGroup]:
    """Cut ``rows`` into groups of at most ``limit`` that share batch entry and key head."""
    shared: dict[tuple[int, int], list[int]] = {}
    for place, row in enumerate(rows):
        shared.setdefault((row.batch, row.head // inputs.group_size), []).append(place)
    for (batch, head), places in shared.items():
        for start in range(0, len(places), limit):
            yield _group(inputs, rows, batch, head, places[start : start + limit])


def _group(
    inputs: AttentionInputs, rows: Sequence[Row], batch: int, head: int, index: list[int]
) -> RowGroup:
    device = inputs.q.device
    spans = [inputs.visible(rows[place]) for place in index]
    tokens = torch.tensor([rows[place].token for place in index], device=device)
    heads = torch.tensor([rows[place].head for place in index], device=device)
    return RowGroup(
        index=index,
        q=inputs.q[batch, tokens, heads].double(),
        k=inputs.k[batch, :, head],
        v=inputs.v[batch, :, head],
        first=torch.tensor([span[0] for span in spans], device=device),
        last=torch.tensor([span[1] for span in spans], device=device),
        scale=inputs.softmax_scale * inputs.k_scale,
        v_scale=inputs.v_scale,
        softcap=inputs.softcap,
        sink=None if inputs.sinks is None else inputs.sinks.to(device)[heads].double(),
    )


def _check_tensors(inputs: AttentionInputs) -> None:
    named = {"q": inputs.q, "k": inputs.k, "v": inputs.v}
    for name, tensor in named.items():
        if tensor.dim() != 4 or not tensor.is_floating_point() or 0 in tensor.shape:
            raise ArgumentError(
                "not a tensor of attention", where=name,
                found=f"{tensor.dtype} {list(tensor.shape)}",
                allowed="floating point [batch, tokens, heads, dim], no dimension of 0",
            )  # fmt: skip
    q, k, v = (tuple(tensor.shape) for tensor in named.values())
    pairs = [
        ("k", k[0], q[0], "batch of q"), ("k", k[3], q[3], "head_dim of q"),
        ("v", v[:3], k[:3], "batch, tokens and heads of k"),
    ]  # fmt: skip
    for name, found, allowed, of in pairs:
        if found != allowed:
            raise ArgumentError(
                "shapes do not fit", where=name, found=found, allowed=f"{allowed}, the {of}"
            )
    if q[2] % k[2]:
        raise ArgumentError(
            "query heads do not divide into key heads", where="q", found=f"{q[2]} heads",
            allowed=f"a multiple of the {k[2]} heads of k",
        )  # fmt: skip
    devices = {str(tensor.device) for tensor in named.values()}
    if len(devices) > 1:
        raise ArgumentError("tensors on several devices", found=sorted(devices), allowed="one")


def _check_constants(inputs: AttentionInputs) -> None:
    heads, (batch, tokens) = inputs.q.shape[2], inputs.k.shape[:2]
    lengths = inputs.kv_lengths or ()
    rules: list[tuple[bool, str, object, str]] = [
        (math.isfinite(inputs.softmax_scale), "scale", inputs.scale, "a finite number"),
        (_positive(inputs.k_scale), "k_scale", inputs.k_scale, "a finite number above 0"),
        (_positive(inputs.v_scale), "v_scale", inputs.v_scale, "a finite number above 0"),
        (inputs.softcap is None or _positive(inputs.softcap), "softcap", inputs.softcap,
         "a finite number above 0, or None"),
        (inputs.window is None or inputs.window >= 1, "window", inputs.window,
         "an integer >= 1, or None"),
        (inputs.window is None or inputs.causal, "window", inputs.window, "None unless causal"),
        (inputs.sinks is None or tuple(inputs.sinks.shape) == (heads,), "sinks",
         None if inputs.sinks is None else list(inputs.sinks.shape), f"[{heads}], one a head"),
        (inputs.kv_lengths is None or len(lengths) == batch, "kv_lengths", lengths,
         f"{batch} lengths"),
        (all(0 <= length <= tokens for length in lengths), "kv_lengths", lengths,
         f"0..{tokens}"),
    ]  # fmt: skip
    for holds, name, found, allowed in rules:
        if not holds:
            raise ArgumentError(
                "an argument is out of range", where=name, found=found, allowed=allowed
            )


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0.0
