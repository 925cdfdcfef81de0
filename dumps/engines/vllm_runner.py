"""Finding the model runner of vLLM from what a user has in hand."""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch

from verify.dumps.engines.batches import EngineInterfaceError


def runner_of(target: Any, version: str) -> Any:
    """The runner of a worker, of itself, or of a model.

    Raises:
        EngineInterfaceError: neither.
    """
    if hasattr(target, "model_runner"):
        return target.model_runner
    if hasattr(target, "execute_model") and hasattr(target, "model"):
        return target
    if isinstance(target, torch.nn.Module):
        found = _holder(target)
        if found is not None:
            return found
    raise EngineInterfaceError(
        "this is no worker, model runner or model of vLLM", where=f"vllm {version}",
        found=type(target).__name__, allowed="the worker that LLM.collective_rpc hands over",
    )  # fmt: skip


def _holder(model: torch.nn.Module) -> Any | None:
    """The model runner that refers to ``model``, maybe through a wrapper: vLLM hands functions the
    model alone."""
    layer: list[Any] = [model]
    for _ in range(4):  # instance, its attributes, a wrapper, its attributes
        layer = [each for known in layer for each in gc.get_referrers(known)]
        for each in layer:
            if hasattr(type(each), "execute_model") and hasattr(each, "model"):
                return each
        layer = [each for each in layer if isinstance(each, dict) or hasattr(each, "runnable")]
    return None


def vllm_version() -> str:
    """Of the package that is loaded."""
    return str(getattr(sys.modules.get("vllm"), "__version__", "unknown version"))
