"""How plain is the demo's defect in every place where the demo may plant it?

    .venv/bin/python benchmarks/demo_places.py

For each (layer, key head) the attention output with and without the newest key is compared on the
operands of the prompt's prefill: the largest change as a share of the largest value, and as a
multiple of the rigorous bound on a correct core (verify/replay/attention.py). Half a minute.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

from verify.demo.defect import IMPLEMENTATION, without_newest_key
from verify.demo.scenario import PROMPT
from verify.dumps.hf.load import load_model
from verify.dumps.hf.prompts import encode_prompt
from verify.formats import get_format
from verify.replay.attention import judge_rows, storage

STORED = storage(IMPLEMENTATION, get_format("float32"))


def main() -> None:
    loaded = load_model("smollm2", dtype="fp32", attn=IMPLEMENTATION)
    found: dict[tuple[int, int], tuple[float, float]] = {}
    sound = registry[IMPLEMENTATION]

    def watched(module, q, k, v, mask, **kwargs):
        out, weights = sound(module, q, k, v, mask, **kwargs)
        if 0 < module.layer_idx < loaded.model.config.num_hidden_layers - 1:
            for head in range(k.shape[1]):
                wrong = without_newest_key(out, q, k, v, head, kwargs["scaling"])
                found[module.layer_idx, head] = measure(
                    wrong, out, q, k, v, head, kwargs["scaling"]
                )
        return out, weights

    registry[IMPLEMENTATION] = watched
    ids = encode_prompt(loaded.tokenizer, PROMPT, raw=False)
    with torch.no_grad():
        loaded.model(torch.tensor([ids]))
    shares, multiples = (np.array(column) for column in zip(*found.values(), strict=True))
    print(f"{len(found)} places, {len(ids)} positions")
    print(f"change / largest value: smallest {shares.min():.3g}, median {np.median(shares):.3g}")
    print(
        f"change / bound:         smallest {multiples.min():.3g}, median {np.median(multiples):.3g}"
    )


def measure(wrong, out, q, k, v, head: int, scale: float) -> tuple[float, float]:
    group = q.shape[1] // k.shape[1]
    causal = np.tril(np.ones((q.shape[2], k.shape[2]), bool))
    keys, values = (x[0, head].double().numpy() for x in (k, v))
    most = 0.0
    for query in range(head * group, (head + 1) * group):
        rows = judge_rows(q[0, query].double().numpy(), keys, values, causal, scale, STORED)
        change = np.abs(wrong[0, :, query].double().numpy() - rows.exact)
        most = max(most, float((change / rows.bound).max()))
    largest = float(np.abs(values).max())
    return float((wrong - out).abs().max()) / largest, most


if __name__ == "__main__":
    main()
