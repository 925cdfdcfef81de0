"""Where a fault enters a running model: context managers that put the model back in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Tensor = Any


@dataclass(frozen=True, slots=True)
class Core:
    """One call of an attention core: q [b, h, t, d]; k, v [b, g, s, d]; out [b, t, h, d]."""

    layer: int
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    scale: float


@contextmanager
def changed_module(module: Any, change: Callable[[Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Inside, ``module(x)`` gives ``change(x, its output)``."""
    sound = module.forward
    module.forward = lambda x, *rest, **named: change(x, sound(x, *rest, **named))
    try:
        yield
    finally:
        del module.forward


@contextmanager
def changed_core(model: Any, layers: set[int], change: Callable[[Core], Tensor]) -> Iterator[None]:
    """Inside, the attention cores of ``layers`` give ``change(core)``."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry
    from transformers.models.llama.modeling_llama import eager_attention_forward

    name = model.config._attn_implementation
    known = {"eager": eager_attention_forward, "sdpa": sdpa_attention_forward}
    sound = known[name] if name in known else registry[name]

    def faulty(module: Any, q: Any, k: Any, v: Any, mask: Any, **named: Any) -> Any:
        out, weights = sound(module, q, k, v, mask, **named)
        if module.layer_idx in layers:
            out = change(Core(module.layer_idx, q, k, v, out, float(named["scaling"])))
        return out, weights

    before = registry._local_mapping.get(name)
    registry[name] = faulty
    try:
        yield
    finally:
        del registry[name]
        if before is not None:
            registry[name] = before


@contextmanager
def changed_rotation(
    attention: Any, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Inside, one attention module rotates by ``change(cos, sin)``, [b, t, d] each."""
    sound = attention.forward

    def forward(*rest: Any, position_embeddings: Any, **named: Any) -> Any:
        return sound(*rest, position_embeddings=change(*position_embeddings), **named)

    attention.forward = forward
    try:
        yield
    finally:
        del attention.forward


@contextmanager
def changed_cache(
    layers: set[int], change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Inside, what the caches hand to the cores of ``layers`` is ``change(keys, values)``."""
    from transformers.cache_utils import DynamicCache

    sound = DynamicCache.update

    def update(self: Any, keys: Any, values: Any, layer: int, *rest: Any, **named: Any) -> Any:
        read = sound(self, keys, values, layer, *rest, **named)
        return change(*read) if layer in layers else read

    DynamicCache.update = update
    try:
        yield
    finally:
        del DynamicCache.update


@contextmanager
def changed_choice(change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the generation loop chooses ``change(logits [b, v])``, [b, 1], not the argmax."""
    from verify.dumps.hf import generate

    sound = generate.choose_token
    generate.choose_token = change  # type: ignore[assignment]
    try:
        yield
    finally:
        generate.choose_token = sound
