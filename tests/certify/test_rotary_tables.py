"""Rotary tables against FP64: what PyTorch computes is rounding, another base is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from verify.bisect.result import BisectResult, Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.certify.rotary_tables import is_rotary_table, rotary_share
from verify.dumps import capture
from verify.dumps.format import Dump, open_dump
from verify.errors import ArgumentError

TABLES = {"model.rotary_emb.out", "model.rotary_emb.out.1"}
IDS = torch.arange(40).reshape(1, 40) % 7


def run(out: Path, dtype: torch.dtype, factor: float, **config: object) -> Dump:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 7, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1}
    torch.manual_seed(0)
    whole = LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, **config)
    model = LlamaForCausalLM(whole).eval()
    frequencies = model.model.rotary_emb.inv_freq * factor
    model.to(dtype)
    model.model.rotary_emb.inv_freq = frequencies  # loading keeps them in FP32, .to() does not
    with torch.no_grad(), capture(model, out):
        model(input_ids=IDS, use_cache=False)
    return open_dump(out)


def shares(dump: Dump) -> dict[str, float]:
    return {
        r.tap: rotary_share(dump, r, slice(None), dump.manifest)
        for r in dump.records()
        if is_rotary_table(r)
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sound_table_is_within_its_roundings(dtype: torch.dtype, tmp_path: Path) -> None:
    found = shares(run(tmp_path / "a", dtype, 1.0))
    assert set(found) == TABLES
    assert max(found.values()) <= 1.0


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.00002), (torch.bfloat16, 1.004)])
def test_another_base_is_not(dtype: torch.dtype, factor: float, tmp_path: Path) -> None:
    assert min(shares(run(tmp_path / "a", dtype, factor)).values()) > 1.0


def test_scaled_angles_have_no_reference(tmp_path: Path) -> None:
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    with pytest.raises(ArgumentError, match="no FP64 reference"):
        shares(run(tmp_path / "a", torch.float32, 1.0, rope_parameters=scaled))


def test_a_pair_blames_the_side_with_the_other_base(tmp_path: Path) -> None:
    pair = (run(tmp_path / "a", torch.float32, 1.0), run(tmp_path / "b", torch.float32, 1.001))
    result: BisectResult = bisect(*pair, checkers=[own_roundings(*pair, None)])
    accused = [f for f in result.findings if f.verdict is Verdict.DEFECT]
    assert {tap for f in accused for tap in f.taps} == TABLES
    assert all(f.title.startswith("B:") or "B:" in f.title for f in accused)
