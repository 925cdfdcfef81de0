"""Greedy generation, spelled out: explicit positions and masks, one capture step a forward pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from verify.dumps.capture.observing import Stepping
from verify.dumps.capture.positions import PADDING
from verify.dumps.format.schema import Sequence
from verify.dumps.hf.kv_cache import new_cache
from verify.dumps.hf.prompts import pad_left

Progress = Callable[[int, int, str], None]
"""Called with forward passes done, passes planned, and what is going on."""

_CANDIDATES = 4  # tokens a position whose text the manifest names, for reports on near ties


@dataclass(frozen=True, slots=True)
class Plan:
    """What to generate.

    ``tokens``: at most this many a sequence. ``forced``: ids of an earlier run by sequence, which
    the model is given in place of its own choice. ``end``: ids that end a sequence (not when
    forced). ``chunk``: columns a prefill step; None: all at once.
    """

    sequences: list[Sequence]
    tokens: int
    padding: int
    end: frozenset[int] = frozenset()
    chunk: int | None = None
    kv_cache: str = "native"
    forced: list[list[int]] | None = None

    @property
    def prompts(self) -> list[list[int]]:
        return [sequence.prompt for sequence in self.sequences]


@dataclass(slots=True)
class State:
    """Where the generation stands: mask of all columns so far [b, columns], rows still running."""

    cache: Any
    mask: np.ndarray
    running: np.ndarray
    chosen: list[list[int]]
    candidates: set[int] = field(default_factory=set)


def generate(
    model: Any, plan: Plan, run: Stepping, progress: Progress = lambda done, total, what: None
) -> tuple[list[list[int]], set[int]]:
    """Run ``plan`` inside the entered capture ``run``.

    Returns:
        The chosen ids of each sequence (the ends included), and ids of the strongest candidates
        of all positions.
    """
    ids, mask = pad_left(plan.prompts, plan.padding)
    batch, width = ids.shape
    chunk = plan.chunk or width
    starts = range(0, width, chunk)
    total = len(starts) + plan.tokens - 1
    state = State(
        cache=new_cache(plan.kv_cache, model.config),
        mask=np.zeros((batch, 0), np.int64),
        running=np.ones(batch, bool),
        chosen=[[] for _ in range(batch)],
    )
    with torch.no_grad():
        for number, start in enumerate(starts):
            progress(number, total, "prefill")
            columns = slice(start, start + chunk)
            fed = torch.from_numpy(ids[:, columns].copy()).to(model.device)
            last = start + chunk >= width
            tokens = forward_step(model, run, state, fed, mask[:, columns], choose=last)
        for index in range(plan.tokens):
            assert tokens is not None
            following = _take(plan, state, tokens, index)
            if index + 1 == plan.tokens or not state.running.any():
                break
            progress(len(starts) + index, total, "decode")
            real = state.running.astype(np.int64)[:, None]
            tokens = forward_step(model, run, state, following, real, choose=True)
    progress(total, total, "done")
    return state.chosen, state.candidates


def forward_step(
    model: Any,
    run: Stepping,
    state: State,
    fed: torch.Tensor,
    real: np.ndarray,
    *,
    choose: bool,
) -> torch.Tensor | None:
    """One forward pass over ``fed`` [b, t]; ``real`` [b, t] is 0 for padding. Returns the chosen
    ids [b, 1], or None when nothing is to be chosen yet."""
    width = fed.shape[1]
    held = state.mask.shape[1]
    state.mask = np.concatenate([state.mask, real], axis=1)
    positions = (state.mask.cumsum(axis=1) - 1)[:, held:]
    kept = [width - 1] if choose else []
    arguments = _arguments(model, state, fed, positions, kept)
    named = np.where(real != 0, positions, PADDING)
    columns = kept if "logits_to_keep" in arguments else None
    with run.step(named, run.sequence_names, cached=held, kept=columns):
        logits = model(**arguments).logits
        if not choose:
            return None
        last = logits[:, -1, :]
        tokens = choose_token(last)
        run.record("tokens.out", tokens, axes="b t", columns=[width - 1])
    count = min(_CANDIDATES, last.shape[-1])
    state.candidates.update(torch.topk(last.float(), count).indices.flatten().tolist())
    return tokens


def choose_token(logits: torch.Tensor) -> torch.Tensor:
    """The largest of ``logits`` [b, v], the first of equal ones: ids [b, 1]."""
    return torch.argmax(logits, dim=-1, keepdim=True)


def _arguments(
    model: Any, state: State, fed: torch.Tensor, positions: np.ndarray, kept: list[int]
) -> dict[str, Any]:
    """Keyword arguments of the model's forward, under the names of the installed transformers."""
    known = inspect.signature(model.forward).parameters
    device = fed.device
    arguments = {
        "input_ids": fed,
        # Padding has no position; these models want a valid index all the same.
        "position_ids": torch.from_numpy(np.maximum(positions, 0)).to(device),
        "attention_mask": torch.from_numpy(state.mask.copy()).to(device),
        "cache" if "cache" in known else "past_key_values": state.cache,
        "use_cache": True,
        # The last position as a number, since an index tensor would be an input of the logits;
        # none of them can only be said with one.
        "logits_to_keep": 1 if kept else torch.empty(0, dtype=torch.int64, device=device),
    }
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    passed_on = {"position_ids", "attention_mask"} if open_ended else set()
    return {name: value for name, value in arguments.items() if name in known or name in passed_on}


def _take(plan: Plan, state: State, tokens: torch.Tensor, index: int) -> torch.Tensor:
    """Note the choices of generated token ``index`` and return the ids [b, 1] to go on with."""
    choices = tokens[:, 0].tolist()
    for row in np.flatnonzero(state.running):
        state.chosen[row].append(choices[row])
        if plan.forced is not None:
            state.running[row] = index + 1 < len(plan.forced[row])
        elif choices[row] in plan.end:
            state.running[row] = False
    if plan.forced is None:
        return tokens
    forced = [row[index] if index < len(row) else plan.padding for row in plan.forced]
    return torch.tensor(forced, device=tokens.device)[:, None]
