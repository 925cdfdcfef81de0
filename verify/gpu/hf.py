"""``attn_implementation="verify_prefill"`` for Hugging Face models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from verify.gpu.attention.contract import SCALE
from verify.gpu.attention.fallback import SDPA, attend_sdpa
from verify.gpu.attention.prefill import prefill
from verify.gpu.errors import KernelError
from verify.gpu.route import RouteRecord, record

NAME = "verify_prefill"


def register_attention() -> str:
    """Make ``attn_implementation="verify_prefill"`` known to transformers. Returns that name.

    Plain causal attention of one sequence goes to ``verify.gpu.prefill``, which records the route
    that answered: a kernel, the CPU oracle, or ``"sdpa"`` with the reason. What carries a mask (a
    sliding window, padding, packed sequences) or a batch goes to SDPA and is recorded likewise.

    Raises KernelError without transformers.
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        raise KernelError(
            "transformers is not installed", hint="pip install 'firstdiff[demo]'"
        ) from error
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, make_mask)
    return NAME


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    *arguments: Any,
    **options: Any,
) -> Tensor | None:
    """transformers' ``sdpa_mask``, except that a plain causal mask, lower right, is None."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    names = ("mask_function", "attention_mask")
    options |= dict(zip(names, arguments, strict=False))
    padding = options.get("attention_mask")
    plain = (
        options.get("mask_function", causal_mask_function) is causal_mask_function
        and options.get("local_size") is None
        and options.get("allow_is_causal_skip", True)
        and kv_offset == 0
        and int(q_offset) + q_length == kv_length
        and (padding is None or bool(padding.all()))
    )
    if plain:
        return None
    mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, **options)
    return mask


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    Args:
        query: [B, query heads, tokens, head_dim]; key, value: [B, key heads, keys, head_dim].
        attention_mask: None for plain causal attention (see ``make_mask``).

    Returns [B, tokens, query heads, head_dim] and no weights.
    """
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    reason = _why_not_ours(query, attention_mask, dropout, causal, options)
    if reason is None or (attention_mask is None and causal and not dropout):
        q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in (query, key, value))
        scale = SCALE if scaling is None else float(scaling)
        if reason is None:
            return prefill(q, k, v, scale=scale, fallback=SDPA), None
        out = attend_sdpa(q, k, v, scale, True)
    else:
        out = _transformers_sdpa(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, options
        )
    record(RouteRecord("prefill", SDPA, str(query.device), reason=reason or ""))
    return out, None


def _why_not_ours(
    query: Tensor,
    attention_mask: Tensor | None,
    dropout: float,
    causal: bool,
    options: dict[str, Any],
) -> str | None:
    """Why a call cannot even be offered to the kernel, or None."""
    rules = (
        (attention_mask is None, "a mask that is not plain causal"),
        (causal, "not causal"),
        (query.shape[0] == 1, f"a batch of {query.shape[0]}"),
        (not dropout, "dropout"),
        (options.get("softcap") is None, "softcap"),
        (options.get("position_bias") is None, "a position bias"),
    )
    return next((why for holds, why in rules if not holds), None)


def _transformers_sdpa(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    is_causal: bool | None,
    options: dict[str, Any],
) -> Tensor:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    out: Tensor = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
        is_causal=is_causal, **options,
    )[0]  # fmt: skip
    return out
