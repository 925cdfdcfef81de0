"""A program of somebody else: it generates with a small model, and knows nothing of verify.

``FAULT=1`` scales a value vector of the second block from the third call on; ``NOISE=1`` adds noise
of another seed in each process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.plain_models import TinyDecoder

PROMPT = [3, 1, 4, 1, 5]


def faulty(calls: list[int]) -> Any:
    def scale(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return output * 1.25 if len(calls) > 2 else output

    return scale


def noisy(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output + 1e-6 * torch.randn(output.shape)


def generate(model: Any, steps: int = 4) -> None:
    with torch.no_grad():
        logits, caches = model(torch.tensor([PROMPT]))
        for _ in range(steps):
            logits, caches = model(logits[:, -1:].argmax(-1), caches)


def build(fault: bool = False, noise: bool = False) -> Any:
    model = TinyDecoder()
    if fault:
        model.layers[1].mlp[0].register_forward_hook(faulty([]))
    if noise:
        torch.manual_seed(os.getpid())
        model.layers[0].mlp.register_forward_hook(noisy)
    return model


if __name__ == "__main__":
    generate(build(bool(os.environ.get("FAULT")), bool(os.environ.get("NOISE"))))
