"""The plugins: nothing without the variable, and with it a capture before the engine warms up."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support import engine_model
from tests.support import engine_stubs as stubs
from verify.dumps.engines import detach, plugin
from verify.dumps.format import open_dump
from verify.errors import ArgumentError

ROOT = Path(__file__).parents[3]
PROMPTS = {"a": [3, 1, 4], "b": [2, 7]}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    stubs.fake_vllm(monkeypatch)
    yield
    detach()


def worker_module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> Any:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Worker:
    """vLLM's: loads the model into its runner."""

    def load_model(self, *, load_dummy_weights: bool = False) -> str:
        keys = engine_model.PagedKeys(engine_model.new_cache())
        self.model_runner = stubs.Runner(engine_model.TinyModel(lambda batch: keys), keys)
        return "loaded"


class ModelRunner(stubs.SglangRunner):
    """SGLang's: loads the model into itself."""

    def __init__(self, is_draft_worker: bool = False) -> None:
        self.is_draft_worker = is_draft_worker

    def load_model(self) -> None:
        keys = engine_model.PagedKeys(engine_model.new_cache())
        super().__init__(engine_model.SglangModel(lambda batch: keys), keys)


def test_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = plugin.VLLM_WORKER
    module = worker_module(monkeypatch, name, Worker=type("Worker", (Worker,), {}))
    monkeypatch.setenv("VERIFY_ATTACH", str(tmp_path / "run"))
    monkeypatch.setenv("VERIFY_ATTACH_LEVEL", "hash")
    monkeypatch.setenv("VERIFY_ATTACH_TAPS", "*.mlp.*.out,logits")
    plugin.register_vllm()
    worker = module.Worker()
    assert worker.load_model(load_dummy_weights=True) == "loaded"
    with torch.inference_mode():
        worker.model_runner.profile_run()
        stubs.serve(worker.model_runner, PROMPTS, budget=64, tokens=2, every=1)
    assert detach() == [str(tmp_path / "run")]
    dump = open_dump(tmp_path / "run")
    assert {r.tap for r in dump.records()} == {
        *(f"model.layers.{layer}.mlp.{n}.out" for layer in range(2) for n in range(3)),
        "tokens.in", "logits",
    }  # fmt: skip
    assert dump.manifest.settings["engine"] == "vllm"


def test_sglang_leaves_draft_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = plugin.SGLANG_RUNNER
    module = worker_module(monkeypatch, name, ModelRunner=type("R", (ModelRunner,), {}))
    monkeypatch.setenv("VERIFY_ATTACH", str(tmp_path / "run"))
    plugin.register_sglang()
    module.ModelRunner(is_draft_worker=True).load_model()
    assert not (tmp_path / "run").exists()
    runner = module.ModelRunner()
    runner.load_model()
    with torch.inference_mode():
        stubs.serve(runner, PROMPTS, budget=64, tokens=2, every=1)
    detach()
    assert {s.id for s in open_dump(tmp_path / "run").manifest.workload.sequences} == {"a", "b"}


def test_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = plugin.VLLM_WORKER
    module = worker_module(monkeypatch, name, Worker=type("Worker", (Worker,), {}))
    monkeypatch.setenv("VERIFY_ATTACH", str(tmp_path / "run"))
    monkeypatch.setenv("VERIFY_ATTACH_GRAPHS", "1")
    monkeypatch.setenv("VERIFY_ATTACH_INPUTS", "positions")
    plugin.register_vllm()
    worker = module.Worker()
    worker.load_model()
    with torch.inference_mode():
        worker.model_runner.capture_model()
        stubs.serve(worker.model_runner, PROMPTS, budget=64, tokens=2, every=1)
    assert detach(worker) == [str(tmp_path / "run")]
    dump = open_dump(tmp_path / "run")
    assert dump.complete and "inputs.positions" in {r.tap for r in dump.records()}
    assert dump.manifest.capture["engine"] == {"steps": 3, "skipped": 1}


def test_methods_of_a_worker(tmp_path: Path) -> None:
    extended = type("Extended", (Worker, plugin.WorkerExtension), {})()
    extended.load_model()
    assert extended.verify_attach(str(tmp_path / "run"), {"level": "hash"}) == str(tmp_path / "run")
    assert extended.verify_detach() == [str(tmp_path / "run")]


def test_without_the_variable_nothing_happens() -> None:
    code = (
        "import sys; from verify.dumps.engines import plugin\n"
        "plugin.register_vllm(); plugin.register_sglang()\n"
        "print(sorted(m for m in sys.modules if m in ('torch', 'numpy', 'verify.dumps.capture.session')),"
        " len(sys.meta_path))\n"
    )
    before = "import sys; import verify.dumps.engines; print([], len(sys.meta_path))"
    said = [
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        ).stdout
        for text in (code, before)
    ]
    assert said[0] == said[1]


def test_a_variable_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="unknown variable") as caught:
        plugin.read_options({"VERIFY_ATTACH": "x", "VERIFY_ATTACH_LEVLE": "hash"})
    assert "VERIFY_ATTACH_LEVEL" in str(caught.value)
    for graphs, name in ((True, "EDGES"), (False, "INPUTS")):
        with pytest.raises(ArgumentError, match="does not go") as caught:
            plugin.read_options(
                {"VERIFY_ATTACH_GRAPHS": str(int(graphs)), f"VERIFY_ATTACH_{name}": "x"}
            )
        assert f"VERIFY_ATTACH_{name}" in str(caught.value)
    assert plugin.read_options({"VERIFY_ATTACH_BYTE_BUDGET": "2M"}) == {"byte_budget": 2_000_000}


def test_the_package_names_its_plugins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in ("vllm.general_plugins", "sglang.srt.plugins"):
        module, _, function = project["entry-points"][group]["verify"].partition(":")
        assert callable(getattr(import_module(module), function))
