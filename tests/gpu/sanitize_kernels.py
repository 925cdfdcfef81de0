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


def run_prefill() -> int:
    calls = 0
    for name, variant in VARIANTS.items():
        if variant.operation != "prefill" or variant_arch(variant.archs, device_arch(0)) is None:
            continue
        for queries, keys in PREFILL_SHAPES:
            for poisoned in (False, True):
                q = torch.randn(1, queries, 6, 256, device="cuda").half()
                k, v = torch.randn(2, 1, keys, 1, 256, device="cuda").half().unbind(0)
                k, v = k.clone(), v.clone()
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
    for page, length in ((16, 100), (48, 129), (800, 1000)):
        cache = make_cache(page, length, 2)
        for shape in ((2 * 40, 32, 1, 256),):
            k_out, v_out = (torch.zeros(shape, dtype=torch.float16, device="cuda") for _ in "kv")
            gpu.e4m3_to_fp16(*cache, k_out=k_out, v_out=v_out, k_scale=0.5)
        narrow = [tensor[..., 1:9] for tensor in cache[:2]]
        k_out, v_out = (torch.zeros(80, 32, 1, 8, dtype=torch.float16, device="cuda") for _ in "kv")
        gpu.e4m3_to_fp16(*narrow, *cache[2:], k_out=k_out, v_out=v_out)
        q = torch.randn(2, 6, 256, device="cuda").half()
        gpu.decode(q, *cache, out=torch.zeros_like(q))
    gpu.check_device_errors()
    return 9


def main() -> None:
    calls = run_prefill() + run_paged()
    torch.cuda.synchronize()
    print(f"{calls} calls")


if __name__ == "__main__":
    main()
