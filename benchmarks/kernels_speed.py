"""Speed of the kernels as paired ABBA ratios, on one GPU.

    PYTHONPATH=. python3 benchmarks/kernels_speed.py [--pairs 100] [--json FILE] [PART ...]

Parts: prefill (against SDPA's flash backend), bridge (against a device copy of the same bytes),
decode (against the copy's bandwidth, by KV bytes read). A pair times A B B A with CUDA events and
gives one ratio (b1 + b2) / (a1 + a2), so a drift of the clocks cancels. Reported: the median ratio
with a 95 % bootstrap interval. Inputs rotate among sets that together exceed the L2 cache.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from verify import gpu
from verify.gpu.arch import device_arch, variant_arch
from verify.gpu.table import VARIANTS

Call = Callable[[int], object]  # runs once on input set i
SETS = 3
PREFILL_SHAPES = [(8192, 32768), (8000, 128000), (8000, 256000)]
BRIDGE_CASES = [(1616, 784, 1, 262144), (800, 32, 8, 131072)]  # page, out_page, B, tokens
DECODE_CASES = [(1616, 8, 131072), (1616, 1, 262144), (800, 64, 16384)]  # page, B, tokens


@dataclass(frozen=True)
class Row:
    case: str
    a: str
    b: str
    a_ms: float
    b_ms: float
    ratio: float  # median of b / a
    low: float  # 95 % bootstrap interval of the median
    high: float
    pairs: int
    note: str = ""

    def __str__(self) -> str:
        return (
            f"{self.case:<26} {self.b:<24} {self.b_ms:9.4f} ms  {self.a} {self.a_ms:9.4f} ms  "
            f"ratio {self.ratio:.4f} [{self.low:.4f}, {self.high:.4f}]  {self.note}"
        )


def time_once(call: Call, index: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call(index % SETS)
    end.record()
    return start, end


def compare(case: str, a: tuple[str, Call], b: tuple[str, Call], pairs: int) -> Row:
    """Paired ABBA comparison of two calls."""
    for index in range(SETS):
        a[1](index), b[1](index)
    torch.cuda.synchronize()
    times = []
    for pair in range(pairs):
        events = [time_once(call, 4 * pair + i) for i, call in enumerate((a[1], b[1], b[1], a[1]))]
        torch.cuda.synchronize()
        times.append([start.elapsed_time(end) for start, end in events])
    t = np.array(times)
    ratios = (t[:, 1] + t[:, 2]) / (t[:, 0] + t[:, 3])
    draws = np.random.default_rng(0).choice(ratios, (2000, pairs))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    a_ms, b_ms = float(np.median(t[:, [0, 3]])), float(np.median(t[:, [1, 2]]))
    return Row(case, a[0], b[0], a_ms, b_ms, float(np.median(ratios)), low, high, pairs)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    k, v = k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1)
    mask = causal_lower_right(q.shape[2], k.shape[2])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=1.0 / 16.0
        )


def prefill_rows(pairs: int) -> list[Row]:
    rows = []
    chip = device_arch(0)
    names = [n for n, v in VARIANTS.items() if v.operation == "prefill"]
    names = [n for n in names if variant_arch(VARIANTS[n].archs, chip)]
    for queries, keys in PREFILL_SHAPES:
        sets = [
            [torch.randn(1, n, h, 256, device="cuda").half()
             for n, h in ((queries, 6), (keys, 1), (keys, 1))]
            for _ in range(SETS)
        ]  # fmt: skip
        out = torch.empty_like(sets[0][0])
        flops = 4.0 * 256 * 6 * (queries * (keys - queries) + queries * (queries + 1) / 2)
        baseline = ("SDPA flash", lambda i: flash(*sets[i]))
        for name in names:
            call = (name, lambda i: gpu.prefill(*sets[i], variant=name, out=out))  # noqa: B023
            row = compare(f"prefill Q{queries}/KV{keys}", baseline, call, pairs)
            rows.append(with_note(row, f"{flops / row.b_ms / 1e9:.0f} TFLOP/s"))
        for base, split in (("prefill", "prefill_split_p"),
                            ("prefill_hopper", "prefill_hopper_split_p")):  # fmt: skip
            if {base, split} <= set(names):
                calls = [(n, lambda i, n=n: gpu.prefill(*sets[i], variant=n, out=out))
                         for n in (base, split)]  # fmt: skip
                rows.append(compare(f"prefill Q{queries}/KV{keys}", *calls, max(10, pairs // 4)))
    return rows


def paged_cache(page: int, batch: int, tokens: int) -> tuple[torch.Tensor, ...]:
    pages = -(-tokens // page)
    codes = torch.randint(
        0, 0x78, (batch * pages, 2, page, 1, 256), dtype=torch.uint8, device="cuda"
    )
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    return *codes.unbind(1), table, torch.full((batch,), tokens, dtype=torch.int32, device="cuda")


def graphed(call: Callable[[], object]) -> Callable[[], object]:
    """``call`` as a graph: what is timed is the device, not the launch from Python."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def copy_of(moved: int) -> list[Callable[[], object]]:
    """Device copies that read and write ``moved`` bytes together."""
    pairs = [[torch.empty(moved // 2, dtype=torch.uint8, device="cuda") for _ in "ab"]
             for _ in range(SETS)]  # fmt: skip
    return [graphed(lambda a=a, b=b: b.copy_(a)) for a, b in pairs]


def bridge_rows(pairs: int) -> list[Row]:
    rows = []
    for page, out_page, batch, tokens in BRIDGE_CASES:
        moved = batch * tokens * 256 * 2 * 3  # one byte in, two out, for K and V
        shape = (batch * -(-tokens // out_page), out_page, 1, 256)
        calls = []
        for _ in range(SETS):
            cache = paged_cache(page, batch, tokens)
            outs = [torch.empty(shape, dtype=torch.float16, device="cuda") for _ in "kv"]
            calls.append(graphed(lambda c=cache, o=outs: gpu.e4m3_to_fp16(
                *c, k_out=o[0], v_out=o[1], k_scale=0.37, v_scale=0.37)))  # fmt: skip
        copies = copy_of(moved)
        row = compare(f"bridge page {page} B{batch} {tokens}", ("copy", lambda i: copies[i]()),
                      ("e4m3_bridge", lambda i: calls[i]()), pairs)  # fmt: skip
        rows.append(with_note(row, f"{moved / row.b_ms / 1e9:.2f} TB/s, "
                                   f"{100 / row.ratio:.0f} % of copy"))  # fmt: skip
    return rows


def decode_rows(pairs: int) -> list[Row]:
    rows = []
    for page, batch, tokens in DECODE_CASES:
        read = batch * tokens * 256 * 2
        q = torch.randn(batch, 6, 256, device="cuda").half()
        out = torch.empty_like(q)
        caches = [paged_cache(page, batch, tokens) for _ in range(SETS)]
        calls = [graphed(lambda c=c: gpu.decode(q, *c, out=out)) for c in caches]
        copies = copy_of(read)
        row = compare(f"decode page {page} B{batch} {tokens}", ("copy", lambda i: copies[i]()),
                      ("decode_wave", lambda i: calls[i]()), pairs)  # fmt: skip
        rows.append(with_note(row, f"{read / row.b_ms / 1e9:.2f} TB/s, "
                                   f"{100 / row.ratio:.0f} % of copy"))  # fmt: skip
    return rows


def with_note(row: Row, note: str) -> Row:
    return Row(**{**asdict(row), "note": note})


PARTS = {"prefill": prefill_rows, "bridge": bridge_rows, "decode": decode_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {given.pairs} pairs")
    rows: list[Row] = []
    for part in given.parts:
        for row in PARTS[part](given.pairs):
            print(row, flush=True)
            rows.append(row)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
