"""The prefill kernels against torch SDPA: ``python examples/endpoints_prefill.py``.

On a GPU every variant with a build for the chip answers under its own name; on the CPU the replay
oracle stands in for them and the routes say so. The endpoints sum and round in different orders, so
their bits differ and the exit code is 1: read ``error/floor`` (sqrt(2) by theory where probabilities
are rounded to FP16 and V has no mean, else 1) and the certificates of what each kernel declares.
``--speed`` times every endpoint against the first, ``--sass`` compares the builds.
"""

from functools import partial

import torch

from verify import gpu
from verify.bounds import Bound
from verify.endpoints import Case, Endpoint, EndpointSpec, relations
from verify.endpoints.cases import Point, lattice
from verify.endpoints.certificates import attention
from verify.gpu.arch import device_arch, variant_arch
from verify.gpu.attention.fallback import attend_sdpa
from verify.gpu.route import CPU_ORACLE
from verify.gpu.table import VARIANTS
from verify.reference.replay.arithmetic import Arithmetic, tensor_core_prefill

ON_GPU = torch.cuda.is_available()
DEVICE, ARCH = ("cuda", device_arch(0)) if ON_GPU else ("cpu", "sm_70")
SCALE = 1 / 16
ROUNDED = Bound(1.5, "sqrt(2) by theory where P is FP16; 1.45 seen at most, few rows scatter")
SPLIT = Bound(1.05, "P is carried to 22 bits: the final rounding is all that is left")


def make(point: Point) -> dict[str, torch.Tensor]:
    queries, heads = point.shape["queries"], point.shape["heads"]
    return {
        "q": point.draw("q", 1, queries, heads, 256, data="zero_mean"),
        "k": point.draw("k", 1, point.length, 1, 256, data="zero_mean"),
        "v": point.draw("v", 1, point.length, 1, 256),
    }


def other_values(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same shapes with keys in another order, for the replay of a graph."""
    return inputs | {name: inputs[name].flip(1).contiguous() for name in ("k", "v")}


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


def declared(name: str) -> Arithmetic:
    """What the header of the kernel's source says about its rounding."""
    parts = 2 if name.endswith("split_p") else 1
    return tensor_core_prefill(ARCH, parts=parts, mass=VARIANTS[name].mass)


def kernel(name: str) -> Endpoint:
    return Endpoint(
        partial(gpu.prefill, variant=name),
        route=name if ON_GPU else CPU_ORACLE,
        accuracy=SPLIT if name.endswith("split_p") else ROUNDED,
        certificate=attention(declared(name), rows=4, scale=SCALE),
    )


def kernels() -> dict[str, Endpoint]:
    names = [name for name, variant in VARIANTS.items() if variant.operation == "prefill"]
    return {name: kernel(name) for name in names if variant_arch(VARIANTS[name].archs, ARCH)}


def cases() -> list[Case]:
    shapes = [{"queries": 64, "heads": 6}]
    if not ON_GPU:  # the oracle is exact in every rounding, and slow
        return lattice(make, shapes=shapes, lengths=[160], data=["zero_mean", "biased"])
    shapes.append({"queries": 1024, "heads": 6})
    kinds = ["zero_mean", "biased", "spiked", "near_overflow"]
    return lattice(
        make, shapes=shapes, lengths=[4128], data=kinds, device=DEVICE,
        keep=lambda point: point.shape["queries"] == 64 or point.data in kinds[:2],
    )  # fmt: skip


NAMES = list(kernels())
OWN = [
    relations.repeat(20 if ON_GPU else 1),
    relations.pad(["q"], axis=1, rows=64),
    relations.poison_around(),
]
if ON_GPU:
    OWN += [relations.other_stream(), relations.graph_replay(other_values)]
SPEC = EndpointSpec(
    endpoints={**kernels(), "sdpa": Endpoint(partial(attend_sdpa, scale=SCALE, causal=True))},
    cases=cases(),
    reference=exact,
    relations=[relations.only(NAMES, relation) for relation in OWN],
    axes="b t h d",
)

if __name__ == "__main__":
    import sys

    from verify.cli import main

    sys.argv = ["verify", "endpoints", __file__, *sys.argv[1:]]
    main()
