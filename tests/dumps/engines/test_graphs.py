"""Taps that live inside graphs, under the requests of an engine; here the engine runs eagerly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.dumps.engines.test_attach import PROMPTS, TOKENS, new_runner, record
from tests.support import engine_stubs as stubs
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.dumps.engines import detach
from verify.dumps.engines.batches import EngineInterfaceError
from verify.dumps.engines.graphs import attach_graphs, graph_taps
from verify.dumps.format import Dump, open_dump


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    stubs.fake_vllm(monkeypatch)
    yield
    detach()


def record_graphs(path: Path, kind: str, *, plant: Any = None, **options: Any) -> Dump:
    runner = new_runner(kind, pad=4)
    if plant is not None:
        plant(runner.model)
    attached = attach_graphs(
        runner, path, engine=kind.partition("-")[0], step_bytes=1 << 18, **options
    )
    with torch.inference_mode():
        runner.capture_model()
        stubs.serve(runner, PROMPTS, budget=5, tokens=TOKENS, every=2)
    assert attached.skipped == 1
    attached.close()
    return open_dump(path)


@pytest.mark.parametrize("kind", ["vllm", "vllm-prepared", "sglang"])
def test_rows_are_those_of_hooks(tmp_path: Path, kind: str) -> None:
    model = new_runner(kind).model
    eager = record(tmp_path / "a", kind, taps=graph_taps(model), level="hash")
    graphs = record_graphs(tmp_path / "b", kind)
    result = bisect(eager, graphs)
    assert result.verdict is Verdict.IDENTICAL, (result.summary, result.not_compared)
    taps = {tap.tap for tap in result.comparison.taps}
    assert {"model.layers.1.out.1", "model.layers.1.input_layernorm.in.0", "tokens.in"} <= taps


@pytest.mark.parametrize("level", ["digest", "full"])
def test_a_fault_is_found(tmp_path: Path, level: str) -> None:
    def plant(model: Any) -> None:
        with torch.no_grad():
            weight = model.model.layers[1].self_attn.o_proj.weight
            weight[2] *= 1.25

    model = new_runner().model
    eager = record(tmp_path / "a", taps=graph_taps(model))
    graphs = record_graphs(tmp_path / "b", "vllm", plant=plant, level=level)
    assert bisect(eager, graphs).origins[0].tap == "model.layers.1.self_attn.o_proj.out"


def test_a_ring_without_room(tmp_path: Path) -> None:
    runner = new_runner()
    attached = attach_graphs(runner, tmp_path / "run", step_bytes=4096, level="full")
    with torch.inference_mode(), pytest.raises(EngineInterfaceError, match="no room for the step"):
        stubs.serve(runner, PROMPTS, budget=64, tokens=2, every=1)
    attached.close()
    assert "execute_model" not in vars(runner)
