"""Prefill against torch SDPA: ``python examples/endpoints_prefill.py``.

On a GPU the ``auto`` kernel variant answers; on the CPU the replay oracle does, and the routes say
so. The endpoints sum in different orders, so their bits differ and the exit code is 1: the figures
to read are ``error_over_floor``.
"""

import torch

from verify import gpu
from verify.endpoints import Case, Endpoint, EndpointSpec, Relation

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SCALE = 1 / 16


def make(mean: float, keys: int = 128, queries: int = 64):
    draw = torch.Generator().manual_seed(7)
    q, k, v = (
        torch.randn(1, n, heads, 256, generator=draw)
        for n, heads in ((queries, 6), (keys, 1), (keys, 1))
    )
    return {n: t.half().to(DEVICE) for n, t in (("q", q), ("k", k), ("v", v + mean))}


def attend(q, k, v):
    """Attention by torch in the dtype of its inputs, causal at the lower right."""
    mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
    mask = mask.tril(k.shape[1] - q.shape[1])
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.expand(-1, q.shape[1], -1, -1) for t in (k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=SCALE)
    return out.transpose(1, 2).contiguous()


def exact(q, k, v):
    return attend(q.double().cpu(), k.double().cpu(), v.double().cpu())


SPEC = EndpointSpec(
    endpoints={
        "prefill": Endpoint(gpu.prefill, None if DEVICE == "cuda" else "cpu_replay_oracle"),
        "sdpa": Endpoint(attend),
    },
    cases=[Case(f"mean {mean:g}", lambda mean=mean: make(mean)) for mean in (0.0, 1.0)],
    reference=exact,
    relations=[Relation("repeat", "bitwise", lambda inputs: inputs)],
)

if __name__ == "__main__":
    import sys

    from verify.cli import main

    sys.argv = ["verify", "endpoints", __file__, *sys.argv[1:]]
    main()
