"""FlashInfer's flight recorder, written as its documentation says."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.importing import import_to, run_cli
from tests.support.planted import Planted
from verify.bisect.run import bisect


def call(root, number, name, inputs, outputs, *, safe=False, flush=None, **more):
    """One call, or one replay of it in a graph; ``outputs`` None: the process died in it."""
    folder = root / f"20260101_000000_{number:03d}_pid7_{name}_call{number:04d}"
    place = folder if flush is None else folder / "graph_flushes" / f"flush_{flush:04d}"
    place.mkdir(parents=True, exist_ok=True)
    for side, tensors in (("inputs", inputs), ("outputs", outputs)):
        if tensors is not None and safe:
            save_file(tensors, place / f"{side}.safetensors")
        elif tensors is not None:
            torch.save(tensors, place / f"{side}.pt")
    line = {
        "function_name": name,
        "call_sequence": number,
        "timestamp": f"20260101_000000_{number:03d}",
        "process_id": 7,
        "input_metadata": {"kwarg_causal": True},
        "versions": {"flashinfer": "0.6"},
        "execution_status": "inputs_saved",
        **more,
    }
    last = line if outputs is None else {**line, "execution_status": "completed"}
    (folder / "metadata.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(last)}\n")


def two_calls(root, second=2.0, **more):
    x = torch.tensor([1.0, float("nan"), -0.0])
    call(root, 1, "silu", {"arg_0": x}, {"result": x}, **more)
    call(root, 2, "norm", {"arg_0": x, "arg_1": x[:1].clone()}, {"result": x * second}, **more)


@pytest.mark.parametrize("safe", [False, True])
def test_tensors_and_edges(tmp_path, safe):
    two_calls(tmp_path / "a", safe=safe)
    run = import_to(tmp_path / "a", tmp_path / "run")
    taps = [r.tap for r in run.records()]
    assert taps == [
        "silu.in.arg_0", "silu.out.result", "norm.in.arg_0", "norm.in.arg_1", "norm.out.result",
    ]  # fmt: skip
    out = run.records()[-1]
    assert [(s.kind, s.seq) for s in out.inputs] == [("record", 2), ("record", 3)]
    assert run.read_words(run.records()[0])[0].tolist() == [0x3F800000, 0x7FC00000, 0x80000000]


def test_a_kernel_that_computes_something_else_is_an_origin(tmp_path):
    two_calls(tmp_path / "a")
    two_calls(tmp_path / "b", second=3.0)
    runs = [import_to(tmp_path / name, tmp_path / f"run-{name}") for name in "ab"]
    result = bisect(*runs)
    assert [origin.tap for origin in result.origins] == ["norm.out.result"]
    assert "First observed" not in result.findings[0].title


def test_state_of_an_object_leaves_the_origin_open(tmp_path):
    two_calls(tmp_path / "a", self_id=1)
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert {source.kind for r in run.records() for source in r.inputs} == {"unknown"}


def test_replays_of_a_graph_are_steps(tmp_path):
    for flush in (1, 2):
        value = torch.full((2,), float(flush))
        call(tmp_path / "a", 1, "add", {"arg_0": value}, {"result": value}, flush=flush)
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert [(r.step, r.tap) for r in run.records()] == [
        (0, "add.in.arg_0"), (0, "add.out.result"), (1, "add.in.arg_0"), (1, "add.out.result"),
    ]  # fmt: skip


def test_a_call_that_died_keeps_its_inputs(tmp_path):
    call(tmp_path / "a", 1, "crash", {"arg_0": torch.ones(2)}, None)
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert [r.tap for r in run.records()] == ["crash.in.arg_0"]
    assert not run.complete
    assert any("1 calls have no outputs, the first: crash" in note for note in run.problems)


def test_what_is_broken_or_planted_is_refused(tmp_path):
    touched = tmp_path / "touched"
    call(tmp_path / "a", 1, "silu", {"arg_0": Planted(touched)}, None)
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "system" in err and not touched.exists()
    for name in ("inputs.pt", "metadata.jsonl"):
        two_calls(tmp_path / "b")
        file = next((tmp_path / "b").glob(f"*silu*/{name}"))
        file.write_bytes(file.read_bytes()[:100])
        code, _, err = run_cli("import", tmp_path / "b", "--format", "flashinfer")
        assert code == 2 and name in err and "Traceback" not in err


def test_half_a_last_line_is_no_harm(tmp_path):
    two_calls(tmp_path / "a")
    for file in (tmp_path / "a").glob("*/metadata.jsonl"):
        file.write_bytes(file.read_bytes()[:-20])
    assert len(import_to(tmp_path / "a", tmp_path / "run").records()) == 5


@pytest.mark.parametrize("safe", ["0", "1"])
def test_the_recorder_itself(tmp_path, monkeypatch, safe):
    found = importlib.util.find_spec("flashinfer")
    if found is None or not found.submodule_search_locations:
        pytest.skip("FlashInfer is not installed")
    monkeypatch.setenv("FLASHINFER_LOGLEVEL", "10")
    monkeypatch.setenv("FLASHINFER_DUMP_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("FLASHINFER_DUMP_SAFETENSORS", safe)
    monkeypatch.setenv("FLASHINFER_LOGDEST", str(tmp_path / "log.txt"))
    file = Path(found.submodule_search_locations[0]) / "api_logging.py"
    spec = importlib.util.spec_from_file_location("recorder", file)
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)

    @recorder.flashinfer_api
    def scale(x, factor=2.0):
        return x * factor

    x = torch.tensor([1.0, float("nan"), -0.0], dtype=torch.bfloat16)
    scale(x)
    scale(x, factor=3.0)
    run = import_to(tmp_path / "a", tmp_path / "run")
    records = run.records()
    assert [record.tap.split(".")[-2] for record in records] == ["in", "out"] * 2
    assert [record.occurrence for record in records] == [0, 0, 1, 1]
    assert run.read_words(records[0])[0].tolist() == [0x3F80, 0x7FC0, 0x8000]
    assert run.read_words(records[3])[0].tolist() == [0x4040, 0x7FC0, 0x8000]
    assert [source.seq for source in records[3].inputs] == [2]
