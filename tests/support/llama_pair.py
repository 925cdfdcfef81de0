"""Runs of a small transformers Llama and of its fused form, captured alike."""

from __future__ import annotations

import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from examples.fused_llama import TAPS, FusedLlama
from verify.dumps import capture
from verify.dumps.format.schema import Sequence, Workload

PROMPT, FORCED = 9, 2
"""Positions of the first step, and steps of one token after it."""


def _steps() -> list[tuple[torch.Tensor, torch.Tensor]]:
    ids = torch.randint(0, 80, (1, PROMPT + FORCED), generator=torch.Generator().manual_seed(7))
    places = torch.arange(PROMPT + FORCED)[None]
    cuts = [0, *range(PROMPT, PROMPT + FORCED + 1)]
    return [(ids[:, a:b], places[:, a:b]) for a, b in pairwise(cuts)]


def run(model: nn.Module, path: Path, **options: Any) -> Path:
    """Capture the same tokens through either model."""
    ids = [int(i) for step, _ in _steps() for i in step[0]]
    workload = Workload(sequences=[Sequence(id="text", prompt=ids[:PROMPT], generated=[])])
    fused = isinstance(model, FusedLlama)
    options = {"taps": TAPS if fused else None, **options}
    cache = DynamicCache(config=model.config)
    steps = _steps()
    with torch.no_grad(), capture(model, path, workload=workload, **options) as recording:
        for step, places in steps:
            with recording.step(positions=places, sequences=["text"]):
                if fused:
                    model(step, places)
                else:
                    model(input_ids=step, position_ids=places, **{_cache_name(model): cache})
    return path


def _cache_name(model: nn.Module) -> str:
    """What transformers calls the cache: later versions renamed the argument."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"
