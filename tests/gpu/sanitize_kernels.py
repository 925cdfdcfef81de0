"""A reduced lattice of kernel calls for compute-sanitizer.

    for tool in memcheck racecheck initcheck synccheck; do
        PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $tool --error-exitcode 9 \
            python3 -m tests.gpu.sanitize_kernels
    done

Without torch's caching allocator each tensor is an allocation of its own, so a read past its end is
seen. Every call is small: the tools slow a kernel down by two to three orders of magnitude.
"""

from __future__ import annotations

import torch

from verify import gpu
from verify.gpu.arch import device_arch, variant_arch
from verify.gpu.table import VARIANTS

PREFILL_SHAPES = [(64, 96), (128, 224), (192, 416)]


def kernels(operation: str) -> list[str]:
    """Variants of an operation that have a build for this GPU."""
    chip = device_arch(0)
    found = [v for v in VARIANTS.values() if v.operation == operation]
    return [v.name for v in found if variant_arch(v.archs, chip)]


def run_prefill() -> int:
    calls = 0
    for name in kernels("prefill"):
        for queries, keys in PREFILL_SHAPES:
            for poisoned in (False, True):
                q = torch.randn(1, queries, 6, 256, device="cuda").half()
                k, v = (torch.randn(1, keys, 1, 256, device="cuda").half() for _ in "kv")
                if poisoned:  # the path that takes Inf and NaN out of a tile
                    v[0, -1] = torch.nan
                gpu.prefill(q, k, v, variant=name, out=torch.zeros_like(q))
                calls += 1
    return calls


def make_cache(page: int, length: int, batch: int) -> tuple[torch.Tensor, ...]:
    pages = -(-length // page)
    codes = torch.randint(
        0, 0x78, (batch * pages, 2, page, 1, 256), dtype=torch.uint8, device="cuda"
    )
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    lengths = torch.tensor([length, 1][:batch], dtype=torch.int32, device="cuda")
    return *codes.unbind(1), table, lengths


def run_paged() -> int:
    calls = 0
    for page, length in ((16, 100), (48, 129), (800, 1000)):
        k, v, table, lengths = make_cache(page, length, 2)
        for codes in ((k, v), (k[..., 1:9], v[..., 1:9])):  # the wide path and the narrow one
            shape = (80, 32, 1, codes[0].shape[3])
            outs = [torch.zeros(shape, dtype=torch.float16, device="cuda") for _ in "kv"]
            gpu.e4m3_to_fp16(*codes, table, lengths, k_out=outs[0], v_out=outs[1], k_scale=0.5)
            calls += 1
        q = torch.randn(2, 6, 256, device="cuda").half()
        for name in kernels("decode_wave"):
            gpu.decode(q, k, v, table, lengths, variant=name, out=torch.zeros_like(q))
            calls += 1
    gpu.check_device_errors()
    return calls


def main() -> None:
    calls = run_prefill() + run_paged()
    torch.cuda.synchronize()
    print(f"{calls} calls")


if __name__ == "__main__":
    main()
