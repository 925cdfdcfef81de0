"""Polygraphy's JSON: by its own writer where it is installed, else as documented."""

import base64
import io
import json

import numpy as np
import pytest
import torch

from tests.support.importing import import_to, run_cli
from tests.support.planted import Planted

VALUES = np.array([[0x7FC00001, 0x80000000], [0xFF800000, 1]], np.uint32).view(np.float32)


def array(values):
    file = io.BytesIO()
    np.save(file, values)
    text = base64.b64encode(file.getvalue()).decode()
    return {"array": text, "polygraphy_class": "ndarray"}


def tensor(value):
    file = io.BytesIO()
    torch.save(value, file)
    text = base64.b64encode(file.getvalue()).decode()
    return {"tensor": text, "polygraphy_class": "Tensor"}


def results(outputs, runners=("trt",)):
    lazy = {k: {"values": v, "polygraphy_class": "LazyArray"} for k, v in outputs.items()}
    one = {
        "outputs": lazy,
        "runtime": 0.1,
        "runner_name": "r",
        "polygraphy_class": "IterationResult",
    }
    return {"lst": [[name, [one]] for name in runners], "polygraphy_class": "RunResults"}


def save(path, content):
    path.write_text(json.dumps(content))
    return path


def words(run):
    return {r.tap: run.read_words(r).reshape(-1).tolist() for r in run.records()}


def test_documented_form(tmp_path):
    half = torch.tensor([0x7FC1, -0x8000], dtype=torch.int16).view(torch.bfloat16)
    path = save(tmp_path / "a.json", results({"x": array(VALUES), "y": tensor(half)}))
    run = import_to(path, tmp_path / "run")
    assert words(run) == {"x": VALUES.view(np.uint32).reshape(-1).tolist(), "y": [0x7FC1, 0x8000]}
    assert [r.dtype for r in run.records()] == ["float32", "bfloat16"]


def test_several_runners_and_inputs(tmp_path):
    path = save(tmp_path / "a.json", results({"x": array(VALUES)}, runners=("trt", "ort")))
    assert words(import_to(path, tmp_path / "run")).keys() == {"trt.x", "ort.x"}
    path = save(tmp_path / "in.json", [{"ids": array(np.arange(3))}])
    assert words(import_to(path, tmp_path / "in"))["ids"] == [0, 1, 2]


def test_the_tool_itself(tmp_path):
    comparator = pytest.importorskip("polygraphy.comparator")
    result = comparator.RunResults()
    outputs = {"x": VALUES, "y": torch.tensor([1.5, -0.0], dtype=torch.bfloat16)}
    result.append(("trt", [comparator.IterationResult(outputs, runtime=0.1, runner_name="trt")]))
    result.save(str(tmp_path / "a.json"))
    found = words(import_to(tmp_path / "a.json", tmp_path / "run"))
    assert found == {"x": VALUES.view(np.uint32).reshape(-1).tolist(), "y": [0x3FC0, 0x8000]}


@pytest.mark.parametrize(
    "content",
    [
        {"lst": 3, "polygraphy_class": "RunResults"},
        results({"x": {"array": "@@@"}}),
        results({"x": {"array": base64.b64encode(b"\x93NUMPY").decode()}}),
        results({"x": {"other": 1}}),
    ],
)
def test_broken_results_are_refused(tmp_path, content):
    code, _, err = run_cli("inspect", save(tmp_path / "a.json", content))
    assert code == 2 and "Traceback" not in err


def test_a_truncated_file_is_refused(tmp_path):
    path = save(tmp_path / "a.json", results({"x": array(VALUES)}))
    path.write_text(path.read_text()[:-30])
    code, _, err = run_cli("import", path, "--format", "polygraphy")
    assert code == 2 and "Traceback" not in err


def test_a_planted_object_is_not_run(tmp_path):
    touched = tmp_path / "touched"
    file = io.BytesIO()
    np.save(file, np.array([Planted(touched)], object), allow_pickle=True)
    array_text = base64.b64encode(file.getvalue()).decode()
    for planted, said in (
        (tensor(Planted(touched)), "system"),
        ({"array": array_text}, "Python objects"),
    ):
        code, _, err = run_cli("inspect", save(tmp_path / "a.json", results({"x": planted})))
        assert code == 2 and said in err and not touched.exists()
