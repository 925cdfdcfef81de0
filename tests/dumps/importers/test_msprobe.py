"""msprobe's dumps, written as its documentation says."""

import importlib.util
import json
import math
import subprocess
import sys
import zlib

import pytest
import torch

from tests.support.importing import import_to, run_cli
from tests.support.planted import Planted
from verify.bisect.run import bisect


def leaf(value, name=None, crc=None):
    x = value.double()
    found = {
        "type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape),
        "Max": x.max().item(), "Min": x.min().item(), "Mean": x.mean().item(),
        "Norm": x.norm().item(), "requires_grad": False,
    }  # fmt: skip
    return found | ({"data_name": name} if name else {}) | ({"md5": crc} if crc else {})


def write(root, calls, rank="rank0", step=0, tensors=None):
    """``calls``: key -> (input, output), leaves."""
    folder = root / f"step{step}" / rank
    (folder / "dump_tensor_data").mkdir(parents=True)
    data = {
        key: {"input_args": [inputs], "input_kwargs": {}, "output": [outputs]}
        for key, (inputs, outputs) in calls.items()
    }
    head = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": ""}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}))
    for name, value in (tensors or {}).items():
        torch.save(value, folder / "dump_tensor_data" / name)
    return root


MODULE = "Module.model.layers.0.mlp.Mlp.forward.0"
API = "Functional.linear.3.forward"


def test_tensors(tmp_path):
    x = torch.tensor([float("nan"), -0.0], dtype=torch.bfloat16)
    names = [f"{MODULE}.input.0.pt", f"{MODULE}.output.0.pt"]
    calls = {MODULE: (leaf(x, names[0]), leaf(x, names[1]))}
    write(tmp_path / "a", calls, tensors=dict.fromkeys(names, x))
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert [r.tap for r in run.records()] == ["model.layers.0.mlp.in.0", "model.layers.0.mlp.out.0"]
    assert run.read_words(run.records()[1])[0].tolist() == [0x7FC0, 0x8000]


def test_statistics_and_crc_stand_for_themselves(tmp_path):
    x = torch.tensor([3.0, 4.0])
    write(tmp_path / "a", {MODULE: (leaf(x), leaf(x, crc="0a0b0c0d")), API: (leaf(x), leaf(x))})
    run = import_to(tmp_path / "a", tmp_path / "run")
    found = {r.tap: r for r in run.records()}
    statistics = found["model.layers.0.mlp.out.0.statistics"]
    assert run.read_words(statistics)[0].view("f8").tolist() == [4.0, 3.0, 3.5, 5.0]
    assert statistics.attributes["stands_for"] == "statistics"
    assert run.read_words(found["model.layers.0.mlp.out.0.crc32"])[0, 0] == 0x0A0B0C0D
    assert "Functional.linear.out.0.statistics" in found


def test_equal_statistics_are_no_equal_tensors(tmp_path):
    for name, last in (("a", 4.0), ("b", 4.5)):
        calls = {MODULE: (leaf(torch.ones(2)), leaf(torch.tensor([3.0, last])))}
        write(tmp_path / name, calls)
    a, b = (import_to(tmp_path / name, tmp_path / f"run-{name}") for name in "ab")
    result = bisect(a, b)
    assert result.origins[0].tap == "model.layers.0.mlp.out.0.statistics"
    assert "First observed" in result.findings[0].title
    code, out, _ = run_cli("bisect", tmp_path / "a", tmp_path / "a")
    assert code == 3 and "compared by statistics alone" in " ".join(out.split())


def test_statistics_that_are_no_numbers(tmp_path):
    x = leaf(torch.ones(2)) | {"Max": "nan", "Min": None, "Mean": math.inf}
    write(tmp_path / "a", {MODULE: (x, x)})
    run = import_to(tmp_path / "a", tmp_path / "run")
    values = run.read_words(run.records()[0])[0].view("f8")
    assert math.isnan(values[0]) and math.isnan(values[1]) and values[2] == math.inf


def test_steps_and_ranks(tmp_path):
    x = leaf(torch.ones(2))
    for step in (0, 1):
        for rank in ("rank0", "rank1"):
            write(tmp_path / "a", {MODULE: (x, x)}, rank=rank, step=step)
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert run.ranks == [0, 1]
    assert [r.step for r in run.records(1)] == [0, 0, 1, 1]


def test_what_is_broken_planted_or_outside_is_refused(tmp_path):
    touched = tmp_path / "touched"
    name = f"{MODULE}.input.0.pt"
    x = leaf(torch.ones(2), name)
    write(tmp_path / "a", {MODULE: (x, x)}, tensors={name: Planted(touched)})
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "system" in err and not touched.exists()
    outside = leaf(torch.ones(2), "../../../../secret.pt")
    write(tmp_path / "b", {MODULE: (outside, outside)})
    code, _, err = run_cli("inspect", tmp_path / "b")
    assert code == 2 and "outside of the dump" in err
    file = write(tmp_path / "c", {MODULE: (x, x)}) / "step0" / "rank0" / "dump.json"
    file.write_text(file.read_text()[:-9])
    code, _, err = run_cli("inspect", tmp_path / "c")
    assert code == 2 and "Traceback" not in err


_PROGRAM = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
debugger = PrecisionDebugger(config_path=sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
debugger.start(model)
out = model(torch.ones(2, 4))
debugger.stop()
debugger.step()
torch.save(out.detach(), sys.argv[2])
"""


@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_the_tool_itself(tmp_path, task):
    if importlib.util.find_spec("msprobe") is None:
        pytest.skip("msprobe is not installed")
    kind = "statistics" if task == "md5" else task
    mode = {"data_mode": ["all"], "scope": [], "list": []}
    mode |= {"summary_mode": "md5"} if task == "md5" else {}
    settings = {"task": kind, "level": "L0", "step": [], "rank": [], kind: mode}
    config, expected = tmp_path / "config.json", tmp_path / "expected.pt"
    config.write_text(json.dumps({**settings, "dump_path": str(tmp_path / "a")}))
    # Its debugger is one for a process.
    subprocess.run([sys.executable, "-c", _PROGRAM, config, expected], check=True, cwd=tmp_path)
    out = torch.load(expected, weights_only=True)
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert run.manifest.capture["source"]["format"] == "msprobe"
    suffix = {"tensor": "", "statistics": ".statistics", "md5": ".crc32"}[task]
    record = next(r for r in run.records() if r.tap.endswith(f"1.out.0{suffix}"))
    words = run.read_words(record)[0]
    if task == "tensor":
        assert words.tolist() == out.numpy().view("u4").reshape(-1).tolist()
    elif task == "statistics":
        assert words.view("f8")[0] == out.max().item()
    else:
        assert words[0] == zlib.crc32(out.numpy().tobytes())
