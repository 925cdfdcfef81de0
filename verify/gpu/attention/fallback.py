"""Named exact routes for what the kernel does not admit, and the CPU oracle."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from verify.gpu.errors import OracleMissingError, SemanticsError

RAISE = "raise"
SDPA = "sdpa"
FP64 = "fp64"
FALLBACKS = (RAISE, SDPA, FP64)
_ROWS = 256  # query rows that the FP64 route holds at once


def check_fallback(fallback: str) -> None:
    """Raise SemanticsError for a fallback that does not exist."""
    if fallback not in FALLBACKS:
        raise SemanticsError(
            "there is no such fallback", where="fallback", found=fallback, allowed=FALLBACKS
        )


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    """torch's scaled_dot_product_attention on [1, tokens, heads, dim], causal to the lower right.

    The backend is torch's choice.
    """
    queries, keys = q.shape[1], k.shape[1]
    mask: Tensor | None = None
    if causal and q.device.type == "cuda":
        mask = causal_lower_right(queries, keys)  # keeps the flash backend possible
    elif causal:
        mask = _lower_right(queries, keys, q.device)
    out = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2).contiguous()


def attend_fp64(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    """Attention in float64 by its definition, one rounding at the end; any device.

    Args as ``attend_sdpa``. Holds 256 rows x KV scores of one head at a time.
    """
    queries, keys, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    out = torch.empty_like(q)
    for head in range(q.shape[2]):
        key, value = (t[0, :, head // group].double() for t in (k, v))
        for start in range(0, queries, _ROWS):
            rows = slice(start, min(start + _ROWS, queries))
            scores = (q[0, rows, head].double() @ key.T) * scale
            if causal:
                visible = _lower_right(queries, keys, q.device, rows)
                scores = scores.masked_fill(~visible, -torch.inf)
            out[0, rows, head] = (scores.softmax(dim=-1) @ value).to(q.dtype)
    return out


def attend_oracle(q: Tensor, k: Tensor, v: Tensor, *, split_p: bool) -> Tensor:
    """The CPU stand-in of the kernel: every rounding that the sm_70 build declares, in its order.

    The tensor core is replayed bit for bit; the exponential is the nearest FP32 number instead of
    the device's, so single outputs may differ from a GPU's by an FP16 ULP.
    """
    try:
        from verify.reference.attention import AttentionInputs
        from verify.reference.replay.arithmetic import tensor_core_prefill
        from verify.reference.replay.attention import replay
    except ImportError as error:
        raise OracleMissingError(
            "the CPU oracle of prefill is not installed", found=error, hint="use CUDA tensors"
        ) from error
    changes: dict[str, object] = {"parts": 2, "mass": "unrounded"} if split_p else {}
    inputs = AttentionInputs(q, k, v, causal=True, scale=1.0 / 16.0)
    replayed = replay(inputs, tensor_core_prefill("sm_70", **changes))
    return torch.from_numpy(replayed.output).to(q.dtype).reshape(q.shape)


def _lower_right(
    queries: int, keys: int, device: torch.device, rows: slice = slice(None)
) -> Tensor:
    """[rows, keys], bool: row i sees keys <= keys - queries + i."""
    last = torch.arange(queries, device=device)[rows] + (keys - queries)
    return torch.arange(keys, device=device)[None, :] <= last[:, None]
