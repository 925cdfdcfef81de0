"""Key-value caches that a capture can choose between."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

from verify.formats import get_format

E4M3 = torch.float8_e4m3fn
E4M3_MAX = float(get_format("float8_e4m3fn").max_finite)
KV_CACHES = ("native", "e4m3")


def round_to_e4m3(tensor: torch.Tensor) -> torch.Tensor:
    """Cast to float8_e4m3fn with scale 1 and back: any shape and float dtype, same on return.

    Saturating: values beyond the largest finite number, infinities included, become that number;
    the cast alone would give NaN there. NaN stays NaN.
    """
    return tensor.clamp(-E4M3_MAX, E4M3_MAX).to(E4M3).to(tensor.dtype)


class E4M3Cache(DynamicCache):  # type: ignore[misc]
    """A growing cache whose every reader, prefill included, sees keys and values rounded to E4M3.

    Args:
        keys, values: layers of which they are rounded; None: all.
        given: as for ``DynamicCache``.
    """

    def __init__(
        self,
        *,
        keys: Collection[int] | None = None,
        values: Collection[int] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self._rounded = keys, values

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Round keys and values [b, h, t, d], append them, and return all [b, h, s, d]."""
        key, value = (
            round_to_e4m3(states) if layers is None or layer_idx in layers else states
            for states, layers in zip((key_states, value_states), self._rounded, strict=True)
        )
        found: tuple[torch.Tensor, torch.Tensor] = super().update(
            key, value, layer_idx, *args, **kwargs
        )
        return found


def new_cache(kind: str, config: Any) -> Cache:
    """An empty cache of ``kind`` (one of ``KV_CACHES``) for a model with this config."""
    return (E4M3Cache if kind == "e4m3" else DynamicCache)(config=config)
