"""Which tokens a call of the root module computes: from its arguments.

Arguments are known by the names that Hugging Face models give them (``input_ids``,
``position_ids``, ``attention_mask``, ``logits_to_keep``), the cache by its type. Any other model
counts from the shape of its first tensor.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verify.dumps.capture.positions import PADDING, PositionTracker


@dataclass(frozen=True, slots=True)
class StepArguments:
    """What is known about a step before it runs; None: to be found from the call.

    ``positions`` [b, t] int64 with -1 for padding, or [n] of a flattened batch, whose ``sequences``
    are one a row; ``cached``: key positions held before;
    ``kept``: columns whose logits are computed.
    """

    positions: np.ndarray | None = None
    sequences: Sequence[str | None] | None = None
    cached: int | None = None
    kept: np.ndarray | None = None


def named_arguments(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a call by parameter name; surplus positional ones as ``arg<i>``."""
    names: list[str] = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            break
        names.append(parameter.name)
    names += [f"arg{index}" for index in range(len(names), len(args))]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def read_step_arguments(
    given: StepArguments, call: Mapping[str, Any], tracker: PositionTracker, hugging_face: bool
) -> StepArguments:
    """Fill in what ``given`` leaves open from the arguments of a call of the root."""
    lead = _lead(call)
    batch, tokens = (1, 1) if lead is None else _counts(lead)
    cached = given.cached
    if cached is None:
        cached = _cache_length(call)
    if cached is None and hugging_face:
        cached = 0  # without a cache these models compute positions from 0
    positions = given.positions
    if positions is None:
        positions = _positions(call, batch, tokens, cached)
    if positions is None:
        positions = tracker.next_positions(batch, tokens)
    kept = given.kept if given.kept is not None else _kept(call, tokens)
    return StepArguments(positions, given.sequences, cached, kept)


def token_ids(call: Mapping[str, Any]) -> torch.Tensor | None:
    """The token ids [b, t] that a call of the root is given, if it is given any."""
    lead = _lead(call)
    if lead is None or lead.ndim != 2 or lead.is_floating_point() or lead.is_complex():
        return None
    return lead


def position_ids(call: Mapping[str, Any]) -> torch.Tensor | None:
    found = call.get("position_ids")
    return found if isinstance(found, torch.Tensor) else None


def _lead(call: Mapping[str, Any]) -> torch.Tensor | None:
    named = [call.get("input_ids"), call.get("inputs_embeds"), *call.values()]
    return next((value for value in named if isinstance(value, torch.Tensor)), None)


def _counts(lead: torch.Tensor) -> tuple[int, int]:
    """Batch and tokens: [b, t] ids, [b, t, c] values; anything else has one row a batch entry."""
    whole_numbers = not (lead.is_floating_point() or lead.is_complex())
    if lead.ndim == 3 or (lead.ndim == 2 and whole_numbers):
        return lead.shape[0], lead.shape[1]
    if lead.ndim == 1 and whole_numbers:
        return 1, lead.shape[0]
    return (lead.shape[0] if lead.ndim else 1), 1


def _positions(
    call: Mapping[str, Any], batch: int, tokens: int, cached: int | None
) -> np.ndarray | None:
    """Positions [b, t] from the arguments, -1 where the attention mask says padding."""
    mask = _token_mask(call, batch, tokens)
    ids = position_ids(call)
    found: np.ndarray | None = None
    if ids is not None and ids.shape[-1] == tokens:
        rows = ids if ids.ndim < 3 else ids[0]
        found = _last_of_each(np.broadcast_to(rows.cpu().numpy(), (batch, tokens)))
    elif mask is not None:
        found = mask.cumsum(axis=1)[:, -tokens:] - 1
    elif cached is not None:
        found = np.broadcast_to(cached + np.arange(tokens), (batch, tokens)).astype(np.int64)
    if found is not None and mask is not None:
        found = np.where(mask[:, -tokens:] != 0, found, PADDING)
    return found


def _last_of_each(positions: np.ndarray) -> np.ndarray:
    """Padding in front of a sequence is often given the position of a real token, because an index
    has to be valid: of equal positions in a row only the last is a token."""
    found = positions.astype(np.int64)
    for row in found:
        _, first_from_behind = np.unique(row[::-1], return_index=True)
        repeated = np.ones(len(row), bool)
        repeated[len(row) - 1 - first_from_behind] = False
        row[repeated] = PADDING
    return found


def _token_mask(call: Mapping[str, Any], batch: int, tokens: int) -> np.ndarray | None:
    mask = call.get("attention_mask")
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or not tokens:
        return None
    if mask.shape[0] != batch or mask.shape[1] < tokens:
        return None
    found: np.ndarray = mask.cpu().numpy().astype(np.int64)
    return found


def _kept(call: Mapping[str, Any], tokens: int) -> np.ndarray | None:
    wanted = call.get("logits_to_keep")
    columns = np.arange(tokens)
    if isinstance(wanted, torch.Tensor) and wanted.ndim == 1:
        at: np.ndarray = wanted.cpu().numpy()
        return np.asarray(columns[at])
    if isinstance(wanted, int) and wanted > 0:
        return columns[-wanted:]
    return None


def _cache_length(call: Mapping[str, Any]) -> int | None:
    """Key positions that the cache among the arguments holds; a cache is known by its type."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is None:
        return None
    found = next((value for value in call.values() if isinstance(value, caches.Cache)), None)
    return None if found is None else int(found.get_seq_length())
