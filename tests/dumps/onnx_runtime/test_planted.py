"""An exported Llama in ONNX Runtime against PyTorch: rounding alone where the file is sound, and a
fault named at the module that holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

import torch
from safetensors.torch import save_file

from tests.support.toy_onnx import IDS, export_llama, node_of, save_with, scale_read, toy_llama
from verify.bisect.result import BisectResult, Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.dumps import capture
from verify.dumps.engine_request import EngineRequest
from verify.dumps.format import open_dump
from verify.dumps.hf.load import LoadedModel
from verify.dumps.hf.record import Request, record_generation
from verify.dumps.onnx_runtime.engine import record_engine
from verify.dumps.onnx_runtime.record import record_onnx
from verify.selftest.toy import toy_tokenizer
from verify.taps.open import open_mapped


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``source``: the run of PyTorch; ``weights.safetensors``; ``sound.onnx``."""
    folder = tmp_path_factory.mktemp("pair")
    model = toy_llama()
    save_file(
        {k: v.contiguous() for k, v in model.state_dict().items()}, folder / "weights.safetensors"
    )
    with torch.no_grad(), capture(model, folder / "source"):
        model(input_ids=torch.tensor(IDS), use_cache=False)
    export_llama(model, folder / "sound.onnx")
    return folder


def judged(pair: Path, folder: Path, plant: Callable[[Any], None] | None) -> BisectResult:
    file = save_with(pair / "sound.onnx", folder / "ran.onnx", plant)
    record_onnx(file, {"input_ids": np.array(IDS)}, folder / "run")
    a, b = open_dump(pair / "source"), open_dump(folder / "run")
    return bisect(a, b, checkers=[own_roundings(a, b, str(pair / "weights.safetensors"))])


def defects(result: BisectResult) -> set[str]:
    return {tap for f in result.findings if f.verdict is Verdict.DEFECT for tap in f.taps}


def test_rounding_alone_in_a_sound_file(pair: Path, tmp_path: Path) -> None:
    result = judged(pair, tmp_path, None)
    assert result.verdict is Verdict.ROUNDING
    source, run = open_dump(pair / "source"), open_dump(tmp_path / "run")
    assert {r.tap for r in run.records()} == {r.tap for r in source.records()}
    assert run.manifest.settings["observer"] == {"logits": True}


LAYER = "model.layers.1"


def weight(module: str) -> Callable[[Any], None]:
    def plant(graph: Any) -> None:
        scale_read(graph, node_of(graph, module, "MatMul").output[0], 1, 1.001)

    return plant


def norm_weight(graph: Any) -> None:
    scale_read(graph, node_of(graph, f"{LAYER}.input_layernorm", "Mul").output[0], 0, 1.001)


def epsilon(graph: Any) -> None:
    scale_read(graph, node_of(graph, f"{LAYER}.input_layernorm", "Add").output[0], 1, 100.0)


def base(graph: Any) -> None:
    scale_read(graph, node_of(graph, "model.rotary_emb", "Mul").output[0], 1, 1.001)


def activation(graph: Any) -> None:
    node_of(graph, f"{LAYER}.mlp.act_fn", "Sigmoid").op_type = "HardSigmoid"


def half_turned(graph: Any) -> None:
    node_of(graph, f"{LAYER}.self_attn", "Neg").op_type = "Identity"


def softmax_scale(graph: Any) -> None:
    keys = node_of(graph, f"{LAYER}.self_attn", "Mul")  # both operands take the root of the scale
    scale_read(graph, keys.output[0], 1, 1.01)


def table(graph: Any) -> None:
    scale_read(graph, node_of(graph, "model.embed_tokens", "Gather").output[0], 0, 1.001)


def residual(graph: Any) -> None:
    node_of(graph, LAYER, "Add").input[0] = node_of(graph, "model.embed_tokens", "Gather").output[0]


@pytest.mark.parametrize(
    ("plant", "at"),
    [
        (weight(f"{LAYER}.self_attn.k_proj"), {f"{LAYER}.self_attn.k_proj.out"}),
        (weight("lm_head"), {"logits"}),
        (norm_weight, {f"{LAYER}.input_layernorm.out"}),
        (epsilon, {f"{LAYER}.input_layernorm.out"}),
        (base, {"model.rotary_emb.out", "model.rotary_emb.out.1"}),
        (activation, {f"{LAYER}.mlp.act_fn.out"}),
        (half_turned, {f"{LAYER}.self_attn.attn.in.k"}),
        (softmax_scale, {f"{LAYER}.self_attn.attn.out"}),
        (table, {"model.embed_tokens.out", "model.layers.0.input_layernorm.in.0"}),
        (residual, {f"{LAYER}.out", "model.norm.in.0"}),
    ],
)
def test_a_planted_fault_is_named_alone(
    plant: Callable[[Any], None], at: set[str], pair: Path, tmp_path: Path
) -> None:
    result = judged(pair, tmp_path, plant)
    assert result.verdict is Verdict.DEFECT
    assert defects(result) == at


def test_the_tokens_of_a_run_are_one_pass_and_choose_the_same(pair: Path, tmp_path: Path) -> None:
    """A prefill and steps with a cache against one pass without: every row has its counterpart."""
    loaded = LoadedModel("toy", toy_llama(), toy_tokenizer(), {})
    request = Request(model="toy", prompts=("abcdef",), tokens=4, raw=True)
    record_generation(request, tmp_path / "source", loaded=loaded)
    wanted = EngineRequest(
        str(pair / "sound.onnx"), tmp_path / "run", {"tape": tmp_path / "source"}
    )
    record_engine(wanted)
    a, b = open_mapped(str(tmp_path / "source"), str(tmp_path / "run"), "onnx")
    result = bisect(a, b, checkers=[own_roundings(a, b, str(pair / "weights.safetensors"))])
    assert result.verdict is Verdict.ROUNDING
    assert result.summary.startswith("All 4 compared token choices agree")
