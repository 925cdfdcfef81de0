"""Bandwidth of the fingerprint kernels on one GPU, against torch's float32 amax.

    PYTHONPATH=. python3 benchmarks/fingerprint_speed.py [--gigabytes 2] [--json FILE]

GB/s of bytes read once, median of CUDA-event times; tensors of one pass together exceed the L2
cache. amax of float32 is the fastest plain read that torch has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch

from verify import gpu

CASES = [
    # dtype, elements of a row
    ("float32", 2048), ("float32", 5120), ("float32", 8192),
    ("float16", 256), ("float16", 2048), ("float16", 5120), ("float16", 8192), ("float16", 16384),
    ("bfloat16", 2048), ("bfloat16", 8192), ("float8_e4m3fn", 4096), ("int64", 1024),
]  # fmt: skip


def median_ms(call: Callable[[], object], repeats: int = 15) -> float:
    call()
    call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def make(dtype: str, row: int, nbytes: int) -> torch.Tensor:
    kind = getattr(torch, dtype)
    rows = nbytes // (row * kind.itemsize)
    if dtype == "int64":
        return torch.randint(-(2**40), 2**40, (rows, row), device="cuda")
    data = torch.empty(rows, row, device="cuda", dtype=kind)
    for part in data.split(max(1, rows // 16)):
        part.copy_(torch.randn(part.shape, device="cuda"))
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--json")
    options = parser.parse_args()
    nbytes = int(options.gigabytes * 1e9)
    lines = []
    plain = make("float32", 8192, nbytes)
    ceiling = plain.numel() * 4 / median_ms(lambda: plain.amax()) / 1e6
    lines.append({"case": "torch float32 amax", "gbs": ceiling})
    print(f"torch float32 amax {ceiling:.0f} GB/s")
    for dtype, row in CASES:
        data = make(dtype, row, nbytes)
        size = data.numel() * data.element_size()
        line: dict[str, object] = {"case": f"{dtype} x {row}"}
        for keep in ("digest", "full"):
            gbs = size / median_ms(lambda: gpu.fingerprint(data, keep=keep)) / 1e6  # type: ignore[arg-type] # noqa: B023
            line[keep] = gbs
        lines.append(line)
        print(
            f"{line['case']:<22} digest {line['digest']:6.0f} GB/s ({line['digest'] / ceiling:.0%})"
            f"   full {line['full']:6.0f} GB/s ({line['full'] / ceiling:.0%})",
            flush=True,
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(lines, out, indent=1)


if __name__ == "__main__":
    main()
