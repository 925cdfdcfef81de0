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
from dataclasses import asdict, dataclass, replace
from functools import partial

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


@dataclass(frozen=True)
class PrefillSets:
    """Rotating inputs of one shape, and the calls on them."""

    sets: list[list[torch.Tensor]]
    out: torch.Tensor

    @classmethod
    def make(cls, queries: int, keys: int) -> PrefillSets:
        shapes = ((queries, 6), (keys, 1), (keys, 1))
        sets = [
            [torch.randn(1, tokens, heads, 256, device="cuda").half() for tokens, heads in shapes]
            for _ in range(SETS)
        ]
        return cls(sets, torch.empty_like(sets[0][0]))

    def kernel(self, name: str) -> tuple[str, Call]:
        return name, lambda i: gpu.prefill(*self.sets[i], variant=name, out=self.out)

    def flash(self) -> tuple[str, Call]:
        return "SDPA flash", lambda i: flash(*self.sets[i])


def variants(operation: str) -> list[str]:
    """Kernels of an operation that have a build for this GPU."""
    chip = device_arch(0)
    found = [v for v in VARIANTS.values() if v.operation == operation]
    return [v.name for v in found if variant_arch(v.archs, chip)]


def prefill_rows(pairs: int) -> list[Row]:
    rows = []
    names = variants("prefill")
    for queries, keys in PREFILL_SHAPES:
        case, inputs = f"prefill Q{queries}/KV{keys}", PrefillSets.make(queries, keys)
        flops = 4.0 * 256 * 6 * (queries * (keys - queries) + queries * (queries + 1) / 2)
        for name in names:
            row = compare(case, inputs.flash(), inputs.kernel(name), pairs)
            rows.append(replace(row, note=f"{flops / row.b_ms / 1e9:.0f} TFLOP/s"))
        for name in names:
            if f"{name}_split_p" in names:
                pair = inputs.kernel(name), inputs.kernel(f"{name}_split_p")
                rows.append(compare(case, *pair, max(10, pairs // 4)))
    return rows


def paged_cache(page: int, batch: int, tokens: int) -> tuple[torch.Tensor, ...]:
    pages = -(-tokens // page)
    codes = torch.randint(
        0, 0x78, (batch * pages, 2, page, 1, 256), dtype=torch.uint8, device="cuda"
    )
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    return *codes.unbind(1), table, torch.full((batch,), tokens, dtype=torch.int32, device="cuda")


class Graphs:
    """Calls as CUDA graphs, one a set: what is timed is the device, not the launch from Python."""

    def __init__(self, calls: list[Callable[[], object]]) -> None:
        self.calls = calls  # keeps the tensors alive that the graphs use
        self.graphs = [torch.cuda.CUDAGraph() for _ in calls]
        for call, graph in zip(calls, self.graphs, strict=True):
            call()
            with torch.cuda.graph(graph):
                call()

    def __call__(self, index: int) -> None:
        self.graphs[index].replay()


def copies(moved: int) -> tuple[str, Call]:
    """Device copies that read and write ``moved`` bytes together."""

    def one() -> Callable[[], object]:
        a, b = (torch.empty(moved // 2, dtype=torch.uint8, device="cuda") for _ in "ab")
        return lambda: b.copy_(a)

    return "copy", Graphs([one() for _ in range(SETS)])


def bridge_call(page: int, out_page: int, batch: int, tokens: int) -> Callable[[], object]:
    cache = paged_cache(page, batch, tokens)
    shape = (batch * -(-tokens // out_page), out_page, 1, 256)
    k_out, v_out = (torch.empty(shape, dtype=torch.float16, device="cuda") for _ in "kv")
    return lambda: gpu.e4m3_to_fp16(*cache, k_out=k_out, v_out=v_out, k_scale=0.37, v_scale=0.37)


def decode_call(name: str, page: int, batch: int, tokens: int) -> Callable[[], object]:
    cache = paged_cache(page, batch, tokens)
    q = torch.randn(batch, 6, 256, device="cuda").half()
    out = torch.empty_like(q)
    return lambda: gpu.decode(q, *cache, variant=name, out=out)


def bandwidth_row(
    case: str, name: str, make: Callable[[], Callable[[], object]], moved: int, pairs: int
) -> Row:
    calls = Graphs([make() for _ in range(SETS)])
    row = compare(case, copies(moved), (name, calls), pairs)
    share = f"{moved / row.b_ms / 1e9:.2f} TB/s, {100 / row.ratio:.0f} % of copy"
    return replace(row, note=share)


def bridge_rows(pairs: int) -> list[Row]:
    # One byte in and two out, for K and V.
    return [
        bandwidth_row(
            f"bridge page {page} B{batch} {tokens}", "e4m3_bridge",
            partial(bridge_call, page, out_page, batch, tokens), batch * tokens * 256 * 6, pairs,
        )
        for page, out_page, batch, tokens in BRIDGE_CASES
    ]  # fmt: skip


def decode_rows(pairs: int) -> list[Row]:
    return [
        bandwidth_row(
            f"decode page {page} B{batch} {tokens}", name,
            partial(decode_call, name, page, batch, tokens), batch * tokens * 256 * 2, pairs,
        )
        for page, batch, tokens in DECODE_CASES
        for name in variants("decode_wave")
    ]  # fmt: skip


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
