"""A cache that forgets: rows keep their positions, and masks say what is read."""

from __future__ import annotations

import numpy as np
import torch

from tests.support.dump_reading import record_of, values_of
from verify.dumps import capture
from verify.dumps.format import open_dump

WINDOW, PROMPT, DECODED = 4, 6, 3
CORE = "model.layers.0.self_attn"


def windowed_model():
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=WINDOW,
        attn_implementation="sdpa",
    )
    return MistralForCausalLM(config).eval()


def test_positions_of_keys_in_a_sliding_cache(tmp_path):
    from transformers import DynamicCache

    model = windowed_model()
    ids = torch.arange(PROMPT + DECODED)[None]
    cache = DynamicCache(config=model.config)
    with torch.no_grad(), capture(model, tmp_path / "run"):
        model(ids[:, :PROMPT], cache=cache)
        for column in range(PROMPT, PROMPT + DECODED):
            model(ids[:, column : column + 1], cache=cache)
    dump = open_dump(tmp_path / "run")
    stored = {}
    for step in range(1 + DECODED):
        key = record_of(dump, f"{CORE}.attn.in.k", step=step)
        for position, row in zip(dump.rows(key).position, values_of(dump, key), strict=True):
            assert position not in stored, "a key that did not change was stored again"
            stored[int(position)] = row
    assert sorted(stored) == list(range(PROMPT + DECODED))
    entering = [
        values_of(dump, record_of(dump, f"{CORE}.cache.in.k", step=step))
        for step in range(1 + DECODED)
    ]
    assert np.array_equal(np.concatenate(entering), np.stack([stored[p] for p in sorted(stored)]))
    last = record_of(dump, f"{CORE}.attn.in.k", step=DECODED)
    assert (last.shape[2], last.n_rows, last.carried) == (WINDOW, 1, WINDOW - 1)
    spans = values_of(dump, record_of(dump, f"{CORE}.attn.in.mask", step=DECODED))
    newest = PROMPT + DECODED - 1
    assert spans.tolist() == [[newest - WINDOW + 1, newest, WINDOW]]
    prefill = values_of(dump, record_of(dump, f"{CORE}.attn.in.mask"))
    assert prefill[-1].tolist() == [PROMPT - WINDOW, PROMPT - 1, WINDOW]
