"""A model of 6 query heads, 1 key head and head dimension 256 with long prompts: SDPA against ours.

    python benchmarks/gpu_model_bisect.py [--tokens 8192] [--chunk 2048] [--layers 6] [--out FOLDER]

Random weights, fp16; on a GPU where there is one, else with the replay oracle (use a small size).
Records the same tokens three times (SDPA, verify_prefill, verify_prefill with a defect planted in one
layer), bisects with replay, and certifies every recorded attention output. Fails where the verdicts
are not what the certificates say.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from verify import gpu
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.certify.attention import certify_core
from verify.dumps.format import Dump, open_dump
from verify.dumps.hf.load import LoadedModel
from verify.dumps.hf.record import Request, record_generation
from verify.replay.checker import checker
from verify.replay.run import Models, replay
from verify.replay.steps import Implementation
from verify.selftest.inject import Core, changed_core
from verify.selftest.judge import accused
from verify.selftest.toy import toy_llama, toy_tokenizer

TAPS = (
    "tokens.*", "logits", "model.embed_tokens.out", "model.layers.*.self_attn.attn.*",
    "model.layers.*.self_attn.cache.*", "model.layers.*.self_attn.o_proj.out", "model.layers.*.out",
    "model.layers.*.input_layernorm.out",
)  # fmt: skip
CERTIFIED_ROWS = 6
Plant = Callable[[Any], AbstractContextManager[Any]]


def make(attention: str, layers: int, device: str) -> Any:
    model = toy_llama(
        attn=attention, hidden_size=2304, intermediate_size=2048, num_hidden_layers=layers,
        num_attention_heads=6, num_key_value_heads=1, head_dim=256, initializer_range=0.02,
        max_position_embeddings=262144,
    )  # fmt: skip
    return model.to(torch.float16).to(device)


def last_tile_wrong(layer: int) -> Plant:
    """The last 64 rows of each prefill call of two heads are 3 % too large."""

    def plant(model: Any) -> AbstractContextManager[Any]:
        def change(core: Core) -> Any:
            if core.out.shape[1] == 1:
                return core.out
            wrong = core.out.clone()
            wrong[:, -64:, 2:4] *= 1.03
            return wrong

        return changed_core(model, {layer}, change)

    return plant


def certificates(dump: Dump) -> tuple[dict[str, int], float]:
    outcomes: Counter[str] = Counter()
    used = 0.0
    for record in dump.records():
        if record.tap.endswith(".attn.out"):
            _, certificate = certify_core(dump, record, CERTIFIED_ROWS)
            outcomes[str(certificate.outcome)] += 1
            used = max(used, certificate.numbers["budget_used"])
    return dict(outcomes), used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = gpu.register_attention()
    text = "".join(chr(97 + (i * i + 7 * i) % 26) for i in range(given.tokens))
    bad = given.layers // 2
    found: dict[str, Any] = {"device": device, "tokens": given.tokens, "chunk": given.chunk}
    began = time.perf_counter()

    def say(what: str) -> None:
        print(f"{time.perf_counter() - began:6.0f} s  {what}", file=sys.stderr, flush=True)
        if given.out:  # what is known so far survives a time limit
            given.out.write_text(json.dumps(found, indent=1) + "\n")

    with TemporaryDirectory() as folder:

        def record(attention: str, run: str, plant: Plant, tape: str | None) -> Implementation:
            model = make(attention, given.layers, device)
            request = Request(
                model="random", prompts=(text,), tokens=3, dtype="fp16", attn=attention, raw=True,
                prefill_chunk=given.chunk, taps=TAPS, tape=Path(folder) / tape if tape else None,
            )  # fmt: skip
            loaded = LoadedModel("random", model, toy_tokenizer(), {})
            with plant(model), gpu.record_routes() as routes:
                record_generation(request, Path(folder) / run, loaded=loaded)
            say(f"recorded {run}")
            found[f"{run} routes"] = dict(Counter(r.route for r in routes))
            return Implementation(model, around=lambda: plant(model))

        sides = {
            "sdpa": record("sdpa", "sdpa", lambda model: nullcontext(), None),
            "ours": record(name, "ours", lambda model: nullcontext(), "sdpa"),
            "defect": record(name, "defect", last_tile_wrong(bad), "sdpa"),
        }
        dumps = {run: open_dump(Path(folder) / run) for run in sides}
        found["seconds recorded"] = time.perf_counter() - began
        for run in ("ours", "defect"):
            pair = dumps["sdpa"], dumps[run]
            replayed = replay(*pair, Models(sides["sdpa"], sides[run]))
            say(f"replayed {run}")
            result = bisect(*pair, checkers=[checker(replayed, *pair)])
            say(f"bisected {run}: {result.verdict}")
            found[run] = {
                "verdict": str(result.verdict), "summary": result.summary,
                "accused": accused(result),
                "findings": [f"{f.verdict}: {f.title}" for f in result.findings],
                "certificates": certificates(dumps[run]),
                "seconds": time.perf_counter() - began,
            }  # fmt: skip
            say(f"certified {run}: {found[run]['certificates']}")
    print(json.dumps(found, indent=1))
    core = f"model.layers.{bad}.self_attn.attn.out"
    assert found["ours"]["accused"] == [] and set(found["ours"]["certificates"][0]) == {"EXPLAINED"}
    assert found["ours"]["verdict"] == Verdict.ROUNDING
    assert found["defect"]["accused"] == [core] and "DEFECT" in found["defect"]["certificates"][0]
    ours = "prefill" if device == "cuda" else "cpu_replay_oracle"
    assert any(route.startswith(ours) for route in found["ours routes"])


if __name__ == "__main__":
    with torch.no_grad():
        main()
