"""Recorded runs of the toy Llama in pairs, with the models that recorded them at hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.toy_model import toy_llama, toy_tokenizer
from verify.dumps.format import Dump, open_dump
from verify.replay.steps import Implementation

PROMPT = "A prompt long enough to be cut into pieces."


@dataclass
class Side:
    """A run of the toy: how it computes, and what is planted while it does."""

    dtype: str = "fp32"
    attn: str = "sdpa"
    options: dict[str, Any] = field(default_factory=dict)
    """Further fields of Request."""
    plant: Callable[[Any], AbstractContextManager[Any]] = lambda model: nullcontext()
    layers: int = 2


def record(path: Path, side: Side, tape: Path | None = None, tokens: int = 3) -> Run:
    """Record the side into ``path``."""
    import torch

    from verify.dumps.hf.load import LoadedModel
    from verify.dumps.hf.record import Request, record_generation

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[side.dtype]
    model = toy_llama(attn=side.attn, num_hidden_layers=side.layers).to(dtype)
    request = Request(
        model="toy",
        prompts=side.options.get("prompts", (PROMPT,)),
        tokens=tokens,
        dtype=side.dtype,
        attn=side.attn,
        tape=tape,
        **{k: v for k, v in side.options.items() if k != "prompts"},
    )
    threads = torch.get_num_threads()
    with side.plant(model):
        record_generation(request, path, loaded=LoadedModel("toy", model, toy_tokenizer(), {}))
    torch.set_num_threads(threads)
    implementation = Implementation(
        model,
        kv_cache=request.kv_cache,
        around=lambda: side.plant(model),
        threads=request.threads,
    )
    return Run(open_dump(path), implementation)


@dataclass
class Run:
    dump: Dump
    implementation: Implementation


def pair(folder: Path, a: Side, b: Side, tokens: int = 3) -> tuple[Run, Run]:
    """Two runs; B is given A's tokens."""
    first = record(folder / "a", a, tokens=tokens)
    return first, record(folder / "b", b, tape=folder / "a", tokens=tokens)


@contextmanager
def changed_output(module: Any, change: Callable[[Any], Any]) -> Any:
    """Inside, ``module`` returns ``change`` of its output."""
    forward = module.forward
    module.forward = lambda *args, **kwargs: change(forward(*args, **kwargs))
    try:
        yield
    finally:
        del module.forward


@contextmanager
def changed_attention(model: Any, layer: int, change: Callable[..., Any]) -> Any:
    """Inside, the attention core of one layer returns ``change(out, q, k, v)``, [b, t, h, d]."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry
    from transformers.models.llama import modeling_llama

    name = model.config._attn_implementation
    sound = modeling_llama.eager_attention_forward if name == "eager" else sdpa_attention_forward

    def faulty(module: Any, q: Any, k: Any, v: Any, mask: Any, **kwargs: Any) -> Any:
        out, weights = sound(module, q, k, v, mask, **kwargs)
        return (change(out, q, k, v) if module.layer_idx == layer else out), weights

    registry[name] = faulty
    try:
        yield
    finally:
        del registry[name]
