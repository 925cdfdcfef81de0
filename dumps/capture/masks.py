"""Attention masks in one canonical form: which keys each query may read.

A causal flag, a boolean mask and an additive mask that say the same become the same numbers:
for each query the absolute position of the first and last allowed key, and their count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from verify.dumps.capture.positions import PADDING, Step
from verify.dumps.capture.tensor_words import tensor_digest

Alignment = Literal["upper-left", "lower-right"]


@dataclass(frozen=True, slots=True)
class MaskRule:
    """What stands in place of a mask tensor: the flags of the attention function.

    ``alignment``: which corner the causal diagonal starts from where there are more keys than
    queries. ``window``: keys that a query may read at most, itself included; None: all.
    """

    causal: bool = False
    alignment: Alignment = "upper-left"
    window: int | None = None


def canonical_mask(
    mask: torch.Tensor | None, rule: MaskRule, queries: int, keys: int, step: Step
) -> tuple[np.ndarray, dict[str, Any]]:
    """Canonical mask int64 [b, t, 3] and attributes that it cannot hold.

    Args:
        mask: broadcastable to [b, h, t, s]; boolean (True may be read) or additive (-inf, or the
            lowest finite number, may not); None for no tensor.
        rule: what the function does by itself, on top of the tensor.
        queries, keys: sizes of t and s.
        step: its key axis gives the positions of s.
    """
    allowed = np.ones((1, queries, keys), bool)
    attributes: dict[str, Any] = {}
    if rule.causal or rule.window is not None:
        allowed = allowed & rule_mask(rule, queries, keys)
    if mask is not None:
        from_tensor, attributes = tensor_mask(mask)
        allowed = allowed & from_tensor
    return _spans(np.broadcast_to(allowed, (step.batch, queries, keys)), step), attributes


def rule_mask(rule: MaskRule, queries: int, keys: int) -> np.ndarray:
    """Boolean [t, s] of the causal flag and the window."""
    shift = 0 if rule.alignment == "upper-left" else keys - queries
    distance = np.arange(queries)[:, None] + shift - np.arange(keys)[None, :]
    allowed = np.ones((queries, keys), bool)
    if rule.causal:
        allowed &= distance >= 0
    if rule.window is not None:
        allowed &= distance < rule.window
    return allowed


def tensor_mask(mask: torch.Tensor) -> tuple[np.ndarray, dict[str, Any]]:
    """Boolean [b, t, s] of a mask tensor, and what it says beyond that."""
    attributes: dict[str, Any] = {}
    full = (
        mask.detach().reshape((1,) * (4 - mask.ndim) + tuple(mask.shape)) if mask.ndim < 4 else mask
    )
    if full.dtype == torch.bool:
        allowed = full
    else:
        allowed = full > torch.finfo(full.dtype).min
        if bool((full[allowed] != 0).any()):
            attributes["bias"] = tensor_digest(full, "attention mask")
    if allowed.shape[1] > 1:
        attributes["mask_heads"] = allowed.shape[1]
        allowed = allowed.any(dim=1, keepdim=True)
    found: np.ndarray = allowed[:, 0].cpu().numpy()
    return found, attributes


def _spans(allowed: np.ndarray, step: Step) -> np.ndarray:
    """First and last allowed key position and the count, int64 [b, t, 3]; -1, -1, 0 for none."""
    batch, queries, keys = allowed.shape
    start, stop = step.keys.columns(keys)
    positions = np.full((batch, keys), PADDING, np.int64)
    positions[:, : stop - start] = step.keys.positions[:, start:stop]
    found = np.full((batch, queries, 3), PADDING, np.int64)
    found[..., 2] = allowed.sum(axis=2)
    some = found[..., 2] > 0
    if keys:
        first = allowed.argmax(axis=2)
        last = keys - 1 - allowed[..., ::-1].argmax(axis=2)
        rows = np.arange(batch)[:, None]
        found[..., 0] = np.where(some, positions[rows, first], PADDING)
        found[..., 1] = np.where(some, positions[rows, last], PADDING)
    return found
