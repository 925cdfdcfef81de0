"""What digests on the device cost: paired ratios on one GPU, with a random-weight model.

    PYTHONPATH=. python3 benchmarks/capture_cost_gpu.py [--json FILE] [PART ...]

Parts: prefill (8192 tokens, eager), decode (one token, replayed CUDA graph), naive (hooks with
``.cpu()``, and torch's DebugMode with hashes), link (full tensors to the host). The model: 24 layers,
hidden 2048, Hq6/Hkv1/D256, MLP 8192 with gate, float16. A pair times A B B A and gives the ratio
(b1 + b2) / (a1 + a2); reported is the median. The floor is the bytes of the taps over the bandwidth
of torch's float32 amax, against the time of the plain run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from verify.dumps.device.drain import Drain
from verify.dumps.device.layout import Keep
from verify.dumps.device.taps import ModuleTaps

LAYERS, HIDDEN, HEADS, KEY_HEADS, DIM, MLP = 24, 2048, 6, 1, 256, 8192
VOCABULARY = 32768
CONTEXT = 1024  # keys that a decode step reads


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (wide * scale).to(x.dtype)


class Attention(nn.Module):
    """Keys and values of a fixed cache are read in decode; prefill attends to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KEY_HEADS * DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KEY_HEADS * DIM, bias=False)
        self.core = Core()
        self.o_proj = nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.register_buffer("keys", torch.randn(1, KEY_HEADS, CONTEXT, DIM))
        self.register_buffer("values", torch.randn(1, KEY_HEADS, CONTEXT, DIM))

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, HEADS, DIM).transpose(1, 2)
        k = self.k_proj(x).view(b, t, KEY_HEADS, DIM).transpose(1, 2)
        v = self.v_proj(x).view(b, t, KEY_HEADS, DIM).transpose(1, 2)
        if t == 1:
            self.keys[:, :, -1:] = k
            self.values[:, :, -1:] = v
            k, v = self.keys, self.values
        return self.o_proj(self.core(q, k, v))


class Core(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = k.expand(-1, HEADS, -1, -1), v.expand(-1, HEADS, -1, -1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        return out.transpose(1, 2).flatten(2)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, MLP, bias=False)
        self.up_proj = nn.Linear(HIDDEN, MLP, bias=False)
        self.act = nn.SiLU()
        self.down_proj = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_norm, self.attn = Norm(HIDDEN), Attention()
        self.post_norm, self.mlp = Norm(HIDDEN), Gated()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.head = Norm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, -1:]))


def boundary_taps(keep: Keep) -> dict[str, Keep]:
    """The residual stream and the attention output of each layer."""
    ports = ("out", "attn.core.out")
    return {f"layers.{i}.{port}": keep for i in range(LAYERS) for port in ports}


def default_taps(keep: Keep) -> dict[str, Keep]:
    """What verify.dumps.capture selects by default, as far as modules show it. The residual stream
    enters the norms, and is the output of the layer before: it is read once."""
    ports = (
        "input_norm.out", "attn.q_proj.out", "attn.k_proj.out", "attn.v_proj.out", "attn.core.out",
        "attn.o_proj.out", "post_norm.in.0", "post_norm.out", "mlp.gate_proj.out", "mlp.up_proj.out",
        "mlp.act.out", "mlp.down_proj.in.0", "mlp.down_proj.out", "out",
    )  # fmt: skip
    layers = {f"layers.{i}.{port}": keep for i in range(LAYERS) for port in ports}
    return {"embed.out": keep, **layers, "norm.out": keep, "head.out": keep}


def paired(
    a: Callable[[], object],
    b: Callable[[], object],
    pairs: int,
    between: Callable[[], object] = lambda: None,
) -> tuple[float, float]:
    """Median milliseconds of ``a``, and the median ratio of ``b`` to it; ``between``: after each
    pair, outside of what is timed."""
    a(), b(), between(), a(), b(), between()
    torch.cuda.synchronize()
    ratios, plain = [], []
    for _ in range(pairs):
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                  for _ in range(4)]  # fmt: skip
        for (start, end), call in zip(events, (a, b, b, a), strict=True):
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        between()
        t = [start.elapsed_time(end) for start, end in events]
        ratios.append((t[1] + t[2]) / (t[0] + t[3]))
        plain.append((t[0] + t[3]) / 2)
    return sorted(plain)[pairs // 2], sorted(ratios)[pairs // 2]


def tapped_bytes(taps: ModuleTaps) -> int:
    """Bytes of the tensors of the last step, each read once."""
    return sum(
        r.observed.rows * r.observed.row_length * (4 if r.observed.dtype == "float32" else 2)
        for r in taps.buffers.layout.regions
    )


VARIANTS: dict[str, Callable[[], dict[str, Keep]]] = {
    "boundary, digest": lambda: boundary_taps("digest"),
    "default, digest": lambda: default_taps("digest"),
    "boundary, with summary": lambda: boundary_taps("summary"),
    "default, with summary": lambda: default_taps("summary"),
}


def prefill(model: Decoder, bandwidth: float, pairs: int) -> list[dict[str, Any]]:
    ids = torch.randint(0, VOCABULARY, (1, 8192), device="cuda")
    lines = []
    for name, chosen in VARIANTS.items():
        taps = ModuleTaps(model, chosen(), "cuda", slots=2, step_bytes=512 << 20)
        drain = Drain(taps.buffers)

        def captured(taps: ModuleTaps = taps, drain: Drain = drain) -> None:
            with taps.attached():
                drain.before()
                model(ids)
                drain.after(1)

        def collected(drain: Drain = drain) -> None:
            list(drain.collect())

        ms, ratio = paired(lambda: model(ids), captured, pairs, collected)
        same = torch.equal(model(ids), _with(taps, model, ids))
        list(drain.collect())
        floor = tapped_bytes(taps) / bandwidth / 1e6 / ms
        lines.append(_line("prefill 8192", name, ms, ratio, floor, same, len(chosen())))
    return lines


def _with(taps: ModuleTaps, model: Decoder, ids: Tensor) -> Tensor:
    with taps.attached():
        return model(ids)


def decode(model: Decoder, bandwidth: float, pairs: int) -> list[dict[str, Any]]:
    ids = torch.randint(0, VOCABULARY, (1, 1), device="cuda")
    plain, expected = captured_graph(model, ids)
    lines = []
    for name, chosen in VARIANTS.items():
        taps = ModuleTaps(model, chosen(), "cuda", slots=64)
        drain = Drain(taps.buffers)
        with taps.attached():
            graph, out = captured_graph(model, ids)
        ms, ratio = paired(plain.replay, graph.replay, pairs * 4)

        def drained(graph: torch.cuda.CUDAGraph = graph, drain: Drain = drain) -> None:
            drain.before()
            graph.replay()
            drain.after(1)
            list(drain.collect())

        _, with_drain = paired(
            lambda: (plain.replay(), torch.cuda.synchronize()), drained, pairs * 4
        )
        plain.replay(), graph.replay()
        floor = tapped_bytes(taps) / bandwidth / 1e6 / ms
        line = _line("decode, graph", name, ms, ratio, floor, torch.equal(out, expected),
                     len(chosen()))  # fmt: skip
        lines.append({**line, "ratio_with_drain": with_drain, "lost": drain.lost})
    return lines


def captured_graph(model: Decoder, ids: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    model(ids)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(ids)
    return graph, out


def naive(model: Decoder, bandwidth: float, pairs: int) -> list[dict[str, Any]]:
    """Hooks that copy to the host, and torch's own DebugMode with hashes."""
    from torch.utils._debug_mode import DebugMode

    lines = []
    for tokens in (8192, 1):
        ids = torch.randint(0, VOCABULARY, (1, tokens), device="cuda")
        kept: list[Tensor] = []

        def hooked(ids: Tensor = ids, kept: list[Tensor] = kept) -> None:
            kept.clear()
            handles = [
                model.get_submodule(tap.removesuffix(".out")).register_forward_hook(
                    lambda m, a, out: kept.append(out.cpu())
                )
                for tap in default_taps("digest")
                if tap.endswith(".out")
            ]
            model(ids)
            for handle in handles:
                handle.remove()

        def debug(ids: Tensor = ids) -> None:
            hashes = getattr(DebugMode, "log_tensor_hashes", None)
            with DebugMode(), hashes(hash_fn="hash_tensor") if hashes else nullcontext():
                model(ids)

        for name, call in (("hooks and .cpu()", hooked), ("DebugMode with hashes", debug)):
            ms, ratio = paired(lambda ids=ids: model(ids), call, max(2, pairs // 4))  # type: ignore[misc]
            lines.append(_line(f"eager, {tokens} tokens", name, ms, ratio, 0.0, True, 0))
    return lines


def _line(
    case: str, name: str, ms: float, ratio: float, floor: float, same: bool, taps: int
) -> dict[str, Any]:
    line = {"case": case, "capture": name, "plain_ms": ms, "ratio": ratio, "floor": 1 + floor,
            "bits_equal": same, "taps": taps}  # fmt: skip
    print(
        f"{case:<20} {name:<26} plain {ms:8.3f} ms  ratio {ratio:.4f}  floor {1 + floor:.4f}  "
        f"bits equal {same}",
        flush=True,
    )
    return line


def link(model: Decoder, bandwidth: float, pairs: int) -> list[dict[str, Any]]:
    """Full tensors through the pinned ring, against a plain pinned copy of the same bytes."""
    from verify.dumps.device.ring import PinnedRing

    tensors = [torch.randn(8192, HIDDEN, device="cuda", dtype=torch.float16) for _ in range(48)]
    total = sum(t.numel() * 2 for t in tensors)
    host = torch.empty(8192, HIDDEN, dtype=torch.float16, pin_memory=True)
    received = [0]

    def plain() -> None:
        for tensor in tensors:
            host.copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()

    with PinnedRing(
        lambda tag, words: received.__setitem__(0, received[0] + words.nbytes), nbytes=1 << 30
    ) as ring:

        def ringed() -> None:
            for index, tensor in enumerate(tensors):
                ring.put(index, tensor)
            ring.flush()

        ms, ratio = paired(plain, ringed, pairs)
    gbs = total / ms / 1e6
    print(f"link: plain pinned copy {gbs:.1f} GB/s, ring {gbs / ratio:.1f} GB/s", flush=True)
    return [{"case": "link", "plain_gbs": gbs, "ring_gbs": gbs / ratio, "lost": ring.lost}]


PARTS = {"prefill": prefill, "decode": decode, "naive": naive, "link": link}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Decoder().half().eval()
    lines: list[dict[str, Any]] = []
    with torch.no_grad():
        probe = torch.randn(1 << 29, device="cuda")
        ms, _ = paired(probe.amax, probe.amax, 5)
        bandwidth = probe.numel() * 4 / ms / 1e6
        del probe
        print(f"torch float32 amax: {bandwidth:.0f} GB/s", flush=True)
        for part in options.parts or PARTS:
            lines += PARTS[part](model, bandwidth, options.pairs)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"amax_gbs": bandwidth, "mlp": MLP, "lines": lines}, out, indent=1)


if __name__ == "__main__":
    main()
