"""The E4M3 bridge against torch's own decoding: ``python examples/endpoints_bridge.py``.

Finite codes (the bridge names one NaN, torch another) at scales that are exact and inexact: equal
bits, and every element is the one of the declared table. Physical pages may move, memory that no
sequence owns may hold anything, and on a GPU one captured graph serves other lengths. On a GPU the
kernel answers, on the CPU the replay oracle, and the routes say so.
"""

import torch

from verify import gpu
from verify.bounds import Bound
from verify.endpoints import Endpoint, EndpointSpec, relations
from verify.endpoints.cases import Point, lattice
from verify.endpoints.certificates import decoding
from verify.gpu.route import CPU_ORACLE
from verify.reference.scaled_decode import float32_scale

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
PAGE, HEADS, DIM = 32, 1, 256


def make(point: Point) -> dict[str, object]:
    """Two sequences, the second half as long, in physical pages of a mixed order; one page is free."""
    pages = -(-point.length // PAGE)
    codes = point.integers("codes", 0, 254, 2, 2 * pages + 1, PAGE, HEADS, DIM)
    codes += codes >= 0x7F  # leaves out 0x7F; 0xFF is beyond the range drawn
    order = torch.arange(2 * pages).flip(0) + 1
    return {
        "cache": codes.to(torch.uint8),
        "table": order.reshape(2, pages).int().to(DEVICE),
        "lens": torch.tensor([point.length, point.length // 2], dtype=torch.int32, device=DEVICE),
        "scale": point.scale,
    }


def bridge(cache, table, lens, scale):
    shape = (2, table.numel(), *cache.shape[2:])
    k_out, v_out = torch.zeros(shape, dtype=torch.float16, device=cache.device)
    gpu.e4m3_to_fp16(
        *cache, table, lens, k_out=k_out, v_out=v_out, k_scale=scale, v_scale=scale
    )  # fmt: skip
    return torch.stack([k_out, v_out]).reshape(2, *table.shape[:1], -1, HEADS, DIM)


def live_codes(cache, table, lens):
    """[k or v, sequence, position, head, dim], uint8; code 0 (+0) behind the live positions."""
    rows = cache[:, table.long()].flatten(2, 3)
    position = torch.arange(rows.shape[2], device=rows.device)
    dead = position[None, :] >= lens[:, None]
    return rows.masked_fill(dead[None, :, :, None, None], 0)


def by_torch(cache, table, lens, scale):
    codes = live_codes(cache, table, lens).view(torch.float8_e4m3fn)
    return (codes.float() * torch.tensor(scale, dtype=torch.float32)).half()


def exact(cache, table, lens, scale):
    codes = live_codes(cache, table, lens).view(torch.float8_e4m3fn)
    return codes.double() * float(float32_scale(scale))


TABLE = decoding(lambda inputs: live_codes(inputs["cache"], inputs["table"], inputs["lens"]))
NEARLY = Bound(1.001, "rounded to FP32, then to FP16: about 1 element in 20,000 is off by a ULP")

SPEC = EndpointSpec(
    endpoints={
        "bridge": Endpoint(
            bridge, "e4m3_bridge" if ON_GPU else CPU_ORACLE, accuracy=NEARLY, certificate=TABLE
        ),
        "torch": Endpoint(by_torch, accuracy=NEARLY, certificate=TABLE),
    },
    cases=lattice(
        make, lengths=[96, 8192] if ON_GPU else [96], scales=[1.0, 0.5, 0.3], device=DEVICE
    ),
    reference=exact,
    relations=[
        relations.repeat(20 if ON_GPU else 2),
        relations.permute_pages(["cache"], "table", block_axis=1),
        relations.poison_pages(["cache"], "table", "lens", block_axis=1),
        relations.poison_around(),
        *([relations.other_stream(), relations.graph_replay(relations.shorten("lens"))] * ON_GPU),
    ],
    axes="kv b t h d",
)

if __name__ == "__main__":
    import sys

    from verify.cli import main

    sys.argv = ["verify", "endpoints", __file__, *sys.argv[1:]]
    main()
