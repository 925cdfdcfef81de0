"""Finds calls of torch's scaled_dot_product_attention.

The function is replaced where Python looks it up, for the time of the capture. A function mode
would see every torch function, and while one is active ``torch.nn.TransformerEncoderLayer`` leaves
its fused path, which would change the numbers that are to be recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from verify.dumps.capture.masks import MaskRule

if TYPE_CHECKING:
    from verify.dumps.capture.observing import Observing

NAME = "scaled_dot_product_attention"


@contextmanager
def intercepted(model: torch.nn.Module, wrapper: Callable[..., Any]) -> Iterator[None]:
    """Route calls through ``wrapper(original, *args, **kwargs)`` and put the original back.

    Besides ``torch.nn.functional``, modules of the model's classes that imported the function by
    name are covered.
    """
    original = getattr(torch.nn.functional, NAME)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    homes = {type(module).__module__ for module in model.modules()}
    spaces = [vars(torch.nn.functional)]
    spaces += [vars(sys.modules[home]) for home in homes if home in sys.modules]
    changed = [
        (space, name)
        for space in spaces
        for name, value in list(space.items())
        if value is original
    ]
    for space, name in changed:
        space[name] = replacement
    try:
        yield
    finally:
        for space, name in changed:
            space[name] = original


def wrapper(capture: Observing) -> Callable[..., Any]:
    """Records a call as the attention core of the module that runs, unless an interceptor nearer
    to the model does so already: then only the flags are added to its record."""

    def call(
        original: Callable[..., Any],
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **kwargs: Any,
    ) -> Any:
        def compute() -> Any:
            with _in_place(original, attn_mask):
                return original(query, key, value, attn_mask, dropout_p, is_causal, **kwargs)

        flags = {"is_causal": bool(is_causal), "enable_gqa": bool(kwargs.get("enable_gqa", False))}
        step, path = capture.current_step, capture.hooks.current
        if capture.core.current is not None:
            capture.core.current.attributes.update(flags)
            return compute()
        if step is None or path is None:
            return compute()
        scale = kwargs.get("scale")
        attributes = {
            "implementation": f"torch.{NAME}",
            "scale": query.shape[-1] ** -0.5 if scale is None else float(scale),
            "dropout": float(dropout_p),
            **flags,
        }
        mask, rule = _mask_of(attn_mask, bool(is_causal))
        with capture.core.call(step, path, (query, key, value), mask, rule, attributes) as core:
            out = compute()
        capture.core.finish(core, out, "b h t d")
        return out

    return call


@contextmanager
def _in_place(original: Callable[..., Any], mask: Any) -> Iterator[None]:
    """Inside, the function is where Python looks it up: a mask of a class of its own recognises
    the function that it is handed to by comparing with that."""
    if mask is None or type(mask) is torch.Tensor:
        yield
        return
    space = vars(torch.nn.functional)
    replaced, space[NAME] = space[NAME], original
    try:
        yield
    finally:
        space[NAME] = replaced


def _mask_of(mask: Any, is_causal: bool) -> tuple[torch.Tensor | None, MaskRule]:
    """The mask tensor, and what the function masks by itself."""
    from torch.nn.attention.bias import CausalBias, CausalVariant

    if isinstance(mask, CausalBias):
        lower = mask.variant is CausalVariant.LOWER_RIGHT
        return None, MaskRule(True, "lower-right" if lower else "upper-left")
    return mask, MaskRule(causal=is_causal)
