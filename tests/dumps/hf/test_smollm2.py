"""A real model, recorded for real."""

from __future__ import annotations

import pytest
import torch

from tests.support.dump_reading import input_names, record_of
from verify.dumps.format import open_dump
from verify.dumps.hf.load import load_model
from verify.dumps.hf.packaged import PACKAGED_MODELS
from verify.dumps.hf.record import Request, record_generation

PROMPT = "Why is the sky blue?"
LAYERS, LAST = 30, "model.layers.29"


@pytest.mark.slow
def test_a_few_tokens_of_smollm2(tmp_path):
    loaded = load_model("smollm2")
    request = Request(model="smollm2", prompts=(PROMPT,), tokens=3)
    recorded = record_generation(request, tmp_path / "run", loaded=loaded)
    dump = open_dump(tmp_path / "run")
    assert dump.complete
    assert dump.manifest.settings["model_source"]["sha256"] == PACKAGED_MODELS["smollm2"].sha256
    # Margins of the first tokens are 0.05 and more, a thousand times the noise of float32.
    assert list(recorded.texts.values()) == ["The answer to"]

    (track,) = dump.tokens().values()
    assert "<|im_start|>" in loaded.tokenizer.decode(track.prompt)
    ids = torch.tensor([track.prompt])
    with torch.no_grad():
        plain = loaded.model(ids, logits_to_keep=1).logits[0]
    stored = dump.read_words(record_of(dump, "logits"))
    assert stored.tobytes() == plain.view(torch.int32).numpy().tobytes()

    cores = [r for r in dump.records() if r.tap.endswith(".attn.out") and r.step == 2]
    assert len(cores) == LAYERS
    key = record_of(dump, f"{LAST}.self_attn.attn.in.k", step=2)
    assert (key.carried, key.n_rows) == (len(track.prompt) + 1, 1)
    assert f"{LAST}.mlp.down_proj.out" in input_names(dump, record_of(dump, f"{LAST}.out"))
    # Nothing in the run came from where the trace could not see.
    assert not [r.tap for r in dump.records() if any(i.kind == "unknown" for i in r.inputs)]
