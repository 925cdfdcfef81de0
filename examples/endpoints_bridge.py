"""The E4M3 bridge against torch's own decoding: ``python examples/endpoints_bridge.py``.

Finite codes (the bridge names one NaN, torch another), scales exact and inexact, page permutation
to the bit. On a GPU the kernel answers, on the CPU the replay oracle, and the routes say so.
"""

import torch

from verify import gpu
from verify.endpoints import Case, Endpoint, EndpointSpec, Relation

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCKS, PAGE, HEADS, DIM = 4, 32, 1, 256


def make(scale: float):
    draw = torch.Generator().manual_seed(7)
    codes = torch.randint(0, 254, (2, BLOCKS, PAGE, HEADS, DIM), generator=draw)
    codes += codes >= 0x7F  # leaves out 0x7F; 0xFF is beyond the range drawn
    table = torch.tensor([[2, 0, 3, 1]], dtype=torch.int32)
    cache = codes.to(torch.uint8).to(DEVICE)
    return {"cache": cache, "table": table.to(DEVICE), "scale": scale}


def bridge(cache, table, scale):
    k_out, v_out = torch.zeros(cache.shape, dtype=torch.float16, device=cache.device)
    length = BLOCKS * PAGE
    lens = torch.tensor([length], dtype=torch.int32, device=cache.device)
    gpu.e4m3_to_fp16(
        *cache, table, lens, k_out=k_out, v_out=v_out,
        k_scale=scale, v_scale=scale, lengths=[length],
    )  # fmt: skip
    return torch.stack([k_out, v_out])


def by_torch(cache, table, scale):
    pages = cache[:, table[0].long()].view(torch.float8_e4m3fn)
    return (pages.float() * torch.tensor(scale, dtype=torch.float32)).half()


def permute_pages(inputs):
    """The same tokens with the physical pages in reverse order."""
    table = BLOCKS - 1 - inputs["table"]
    return inputs | {"cache": inputs["cache"].flip(1).contiguous(), "table": table}


SPEC = EndpointSpec(
    endpoints={
        "bridge": Endpoint(bridge, None if DEVICE == "cuda" else "cpu_replay_oracle"),
        "torch": Endpoint(by_torch),
    },
    cases=[Case(f"scale {scale:g}", lambda scale=scale: make(scale)) for scale in (1.0, 0.5, 0.3)],
    relations=[Relation("page permutation", "bitwise", permute_pages)],
)

if __name__ == "__main__":
    import sys

    from verify.cli import main

    sys.argv = ["verify", "endpoints", __file__, *sys.argv[1:]]
    main()
