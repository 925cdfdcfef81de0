"""Each side held against FP64 on its own inputs: nothing innocent is accused."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import save_file

from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.dumps.format import open_dump
from verify.dumps.hf.load import LoadedModel
from verify.dumps.hf.record import Request, record_generation
from verify.errors import VerifyError
from verify.selftest.toy import toy_llama, toy_tokenizer


def test_logits_of_the_last_position_are_not_held_against_other_rows(tmp_path: Path) -> None:
    """The logits of a prompt are those of its last position; what they read has a row a position."""
    for attn in ("sdpa", "eager"):
        model = toy_llama(attn=attn)
        request = Request(model="toy", prompts=("abcdefghijkl",), tokens=3, attn=attn, raw=True)
        loaded = LoadedModel("toy", model, toy_tokenizer(), {})
        record_generation(request, tmp_path / attn, loaded=loaded)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(weights, str(tmp_path / "w.safetensors"))
    a, b = open_dump(tmp_path / "sdpa"), open_dump(tmp_path / "eager")
    logits = [record for record in a.records() if record.tap == "logits"]
    assert logits[0].n_rows == 1  # the case in question
    result = bisect(a, b, checkers=[own_roundings(a, b, str(tmp_path / "w.safetensors"))])
    assert not [f.title for f in result.findings if f.verdict is Verdict.DEFECT]
    assert any(f.verdict is Verdict.ROUNDING for f in result.findings)


def test_weights_that_cannot_be_read_are_an_error_and_not_silence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    loaded = LoadedModel("toy", toy_llama(), toy_tokenizer(), {})
    record_generation(
        Request(model="toy", prompts=("abc",), tokens=1, raw=True), run, loaded=loaded
    )
    dump = open_dump(run)
    (tmp_path / "broken.safetensors").write_bytes(b"no weights")
    for name in ("nowhere.safetensors", "broken.safetensors"):
        with pytest.raises(VerifyError):
            own_roundings(dump, dump, str(tmp_path / name))
