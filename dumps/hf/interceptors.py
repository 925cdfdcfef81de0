"""Where transformers computes attention and fills its caches, seen by a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.modeling_utils import AttentionInterface

from verify.dumps.capture.masks import MaskRule
from verify.dumps.capture.observing import Observing
from verify.dumps.capture.selection import port

Function = Callable[..., Any]


@contextmanager
def attention_functions(capture: Observing) -> Iterator[None]:
    """Record every attention function that a model of ``capture`` looks up, eager ones included,
    which live in the modelling files and are handed in as the default."""
    original = AttentionInterface.get_interface

    def get_interface(self: Any, implementation: str, default: Function) -> Function:
        function: Function = original(self, implementation, default)

        def recorded(
            module: torch.nn.Module, query: Any, key: Any, value: Any, *rest: Any, **kwargs: Any
        ) -> Any:
            return _recorded_call(
                capture, function, implementation, module, (query, key, value), rest, kwargs
            )

        return recorded

    AttentionInterface.get_interface = get_interface
    try:
        yield
    finally:
        AttentionInterface.get_interface = original


def _recorded_call(
    capture: Observing,
    function: Function,
    implementation: str,
    module: torch.nn.Module,
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    rest: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    path, step = capture.hooks.path_of(module), capture.current_step
    if path is None or step is None:
        return function(module, *qkv, *rest, **kwargs)
    mask = rest[0] if rest else kwargs.get("attention_mask")
    queries, keys = qkv[0].shape[2], qkv[1].shape[2]
    rule = _rule(implementation, module, mask, queries, kwargs)
    if mask is not None and mask.ndim == 2:
        mask = mask[:, None, None, -keys:].bool()  # flash attention is given padding only
    attributes = _attributes(implementation, module, kwargs, mask)
    with capture.core.call(step, path, qkv, mask, rule, attributes) as call:
        output = function(module, *qkv, *rest, **kwargs)
    capture.core.finish(call, output[0], "b t h d")
    return output


def _rule(
    implementation: str, module: torch.nn.Module, mask: Any, queries: int, kwargs: dict[str, Any]
) -> MaskRule:
    """What the function masks by itself (transformers/integrations/*_attention.py): eager nothing;
    sdpa causally when it has several queries and no mask, and so does verify_prefill, from the lower
    right corner; flash kernels always, and the window."""
    flag = kwargs.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if flag is None else flag)
    if implementation == "eager":
        return MaskRule()
    if implementation == "verify_prefill":
        return MaskRule(causal and mask is None and queries > 1, "lower-right")
    if "flash" in implementation:
        return MaskRule(causal, "lower-right", kwargs.get("sliding_window"))
    return MaskRule(causal and mask is None and queries > 1)


def _attributes(
    implementation: str, module: torch.nn.Module, kwargs: dict[str, Any], mask: Any
) -> dict[str, Any]:
    """Scalars that the function reads."""
    scale = kwargs.get("scaling", getattr(module, "scaling", None))
    found: dict[str, Any] = {
        "implementation": implementation,
        "scale": None if scale is None else float(scale),
        "dropout": float(kwargs.get("dropout", 0.0)),
        "mask": "none" if mask is None else str(mask.dtype).removeprefix("torch."),
    }
    for name in ("sliding_window", "softcap"):
        value = kwargs.get(name, getattr(module, name, None))
        if value is not None:
            found[name] = value
    return found


@contextmanager
def cache_updates(capture: Observing) -> Iterator[None]:
    """Record keys and values as they enter a cache, at ``<attention module>.cache.in.k|v``: before
    anything that the cache does to them."""
    owners = [kind for kind in _with_subclasses(Cache) if "update" in vars(kind)]
    originals = {kind: kind.update for kind in owners}
    inside = False

    def replacement(original: Function) -> Function:
        def update(self: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:  # a subclass that calls its parent
                return original(self, key, value, *args, **kwargs)
            inside = True
            try:
                _record_update(capture, key, value)
                return original(self, key, value, *args, **kwargs)
            finally:
                inside = False

        return update

    for kind, original in originals.items():
        kind.update = replacement(original)
    try:
        yield
    finally:
        for kind, original in originals.items():
            kind.update = original


def _record_update(capture: Observing, key: torch.Tensor, value: torch.Tensor) -> None:
    path = capture.hooks.current
    if path is None or capture.current_step is None:
        return
    for name, tensor in (("k", key), ("v", value)):
        axes = "b h t d" if tensor.ndim == 4 else None
        tap = port(path, f"cache.in.{name}")
        if tap in capture.taps:
            capture.record(tap, tensor, axes=axes)


def _with_subclasses(kind: Any) -> list[Any]:
    children: list[Any] = kind.__subclasses__()
    return [kind, *(found for child in children for found in _with_subclasses(child))]
