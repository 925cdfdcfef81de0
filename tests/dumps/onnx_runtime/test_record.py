"""What is recorded of an ONNX file, under which names, and what is left out or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.cli.app import app
from verify.dumps import capture
from verify.dumps.format import Dump, open_dump
from verify.dumps.onnx_runtime.record import record_onnx
from verify.errors import ModelError

X = np.linspace(-2, 2, 2 * 3 * 8, dtype=np.float32).reshape(2, 3, 8)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.fc1, self.act, self.fc2 = (
            torch.nn.Linear(8, 16),
            torch.nn.GELU(),
            torch.nn.Linear(16, 8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(self.act(self.fc1(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("dynamo", [True, False])
def test_both_exporters_leave_the_names_of_the_modules(dynamo: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    model = Net().eval()
    with torch.no_grad(), capture(model, tmp_path / "source"):
        model(torch.from_numpy(X))
    file = tmp_path / "m.onnx"
    torch.onnx.export(model, (torch.from_numpy(X),), str(file), dynamo=dynamo, input_names=["x"])
    record_onnx(file, {"x": X}, tmp_path / "run")
    pair = open_dump(tmp_path / "source"), open_dump(tmp_path / "run")
    inside = {name for name in taps(pair[0]) if name.startswith("layers.")}
    assert inside <= taps(pair[1])
    torch.save(model.state_dict(), tmp_path / "w.pt")
    from safetensors.torch import save_file

    save_file(model.state_dict(), tmp_path / "w.safetensors")
    result = bisect(*pair, checkers=[own_roundings(*pair, str(tmp_path / "w.safetensors"))])
    assert result.verdict is Verdict.ROUNDING


def taps(dump: Dump) -> set[str]:
    return {record.tap for record in dump.records()}


def save(
    path: Path, nodes: list[Any], constants: dict[str, np.ndarray] | None = None, **outputs: Any
) -> Path:
    """A graph from ``x`` [2, 3, 8]; outputs by name with their types."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8])],
        list(outputs.values()),
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def tensor(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def node(operation: str, reads: list[str], makes: list[str], at: str, **attributes: Any) -> Any:
    name = f"/{at.replace('.', '/')}/{operation}" if at else f"/{operation}"
    return helper.make_node(operation, reads, makes, name=name, **attributes)


def recorded(path: Path, out: Path) -> Dump:
    record_onnx(path, {"x": X}, out)
    return open_dump(out)


def notes(dump: Dump) -> str:
    return " ".join(dump.manifest.capture["source"]["notes"])


def test_a_module_called_twice_has_no_single_output(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], "act"),
        node("Exp", ["a"], ["b"], "other"),
        node("Abs", ["b"], ["c"], "act"),
        node("Neg", ["c"], ["y"], ""),
    ]
    dump = recorded(save(tmp_path / "m.onnx", nodes, y=tensor("y")), tmp_path / "run")
    assert taps(dump) == {"other.out", "y"}
    assert "no single output in the graph: act" in notes(dump)


def test_nodes_without_a_name_and_sizes_do_not_hide_what_a_module_returns(tmp_path: Path) -> None:
    """An exporter's rewriting leaves nodes without a module, and modules share what they know of sizes."""
    nodes = [
        node("Exp", ["x"], ["a"], "block.up"),
        helper.make_node("Abs", ["a"], ["b"]),
        node("Shape", ["b"], ["size"], "block.down"),
        node("Neg", ["b"], ["c"], "block.down"),
        node("Shape", ["c"], ["other"], "next"),
        node("Reshape", ["c", "size"], ["d"], "next"),
        node("ConstantOfShape", ["other"], ["zero"], ""),
        node("Add", ["d", "zero"], ["y"], ""),
    ]
    dump = recorded(save(tmp_path / "m.onnx", nodes, y=tensor("y")), tmp_path / "run")
    assert taps(dump) == {"block.up.out", "block.down.out", "next.out", "y"}
    assert not notes(dump)


def test_values_of_16_bits_are_recorded_and_not_judged(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.SiLU()).half()
    with torch.no_grad(), capture(model, tmp_path / "source"):
        model(torch.from_numpy(X).half())
    # Rounded to float16 between the two only where it is stored: the second reads it unrounded.
    nodes = [node("Cast", ["x"], ["h"], "", to=TensorProto.FLOAT16)]
    for at, (read, made) in enumerate((("h", "a"), ("a", "b"))):
        nodes.append(node("Sigmoid", [read], [f"s{at}"], str(at)))
        nodes.append(node("Mul", [read, f"s{at}"], [made], str(at)))
    half = helper.make_tensor_value_info("b", TensorProto.FLOAT16, None)
    dump = recorded(save(tmp_path / "m.onnx", nodes, b=half), tmp_path / "run")
    assert "none is judged by its recorded inputs" in notes(dump)
    pair = open_dump(tmp_path / "source"), dump
    result = bisect(*pair, checkers=[own_roundings(*pair, None)])
    assert result.verdict is not Verdict.DEFECT


def test_what_a_branch_reads_counts_as_read(tmp_path: Path) -> None:
    branch = helper.make_graph([node("Neg", ["a"], ["z"], "")], "then", [], [tensor("z")])
    nodes = [
        node("Exp", ["x"], ["hidden"], "up"),
        node("Relu", ["hidden"], ["a"], "up"),
        node("If", ["yes"], ["y"], "", then_branch=branch, else_branch=branch),
    ]
    file = save(tmp_path / "m.onnx", nodes, {"yes": np.array(True)}, y=tensor("y"))
    dump = recorded(file, tmp_path / "run")
    assert taps(dump) == {"up.out", "y"}
    held = next(r for r in dump.records() if r.tap == "up.out")
    assert (dump.read_words(held).view(np.float32).reshape(X.shape) == np.exp(X)).mean() > 0.5


def test_a_value_that_is_no_tensor_is_left_out_and_said(tmp_path: Path) -> None:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"], "pack"),
        node("ConcatFromSequence", ["s"], ["y"], "join", axis=0),
    ]
    dump = recorded(save(tmp_path / "m.onnx", nodes, y=tensor("y")), tmp_path / "run")
    assert "join.out" in taps(dump) and "pack.out" not in taps(dump)
    assert "pack.out: not a tensor of numbers" in notes(dump)


def test_weights_beside_the_file_are_read_and_the_file_stays(tmp_path: Path) -> None:
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    nodes = [node("MatMul", ["x", "w"], ["y"], "fc")]
    plain = save(tmp_path / "plain.onnx", nodes, {"w": weight}, y=tensor("y"))
    beside = tmp_path / "deep" / "m.onnx"
    beside.parent.mkdir()
    onnx.save(
        onnx.load(plain), beside, save_as_external_data=True, location="w.bin", size_threshold=0
    )
    before = {path.name: path.read_bytes() for path in beside.parent.iterdir()}
    assert set(before) == {"m.onnx", "w.bin"}
    one, two = recorded(plain, tmp_path / "one"), recorded(beside, tmp_path / "two")
    assert [one.read_words(r).tobytes() for r in one.records()] == [
        two.read_words(r).tobytes() for r in two.records()
    ]
    assert {path.name: path.read_bytes() for path in beside.parent.iterdir()} == before


def test_broken_and_foreign_files_are_refused(tmp_path: Path) -> None:
    sound = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"], "act")], y=tensor("y"))
    data = sound.read_bytes()
    for name, content in (
        ("empty", b""),
        ("text", b"not a model at all, only words\n" * 9),
        ("cut", data[: len(data) // 2]),
        ("pickle", b"\x80\x04cos\nsystem\n"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError):
            recorded(tmp_path / name, tmp_path / f"run-{name}")
        assert not (tmp_path / f"run-{name}").exists()


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "inputs are not those of the graph"),
        ({"x": X, "mask": X}, "inputs are not those of the graph"),
        ({"x": X[:, :, :4]}, "cannot run the model"),
        ({"x": X.astype(np.float64)}, "cannot run the model"),
    ],
)
def test_other_inputs_are_refused(inputs: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"], "act")], y=tensor("y"))
    with pytest.raises(ModelError, match=said):
        record_onnx(file, inputs, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def command(tmp_path: Path, *words: str) -> Any:
    file = save(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"], "act")], y=tensor("y"))
    np.savez(tmp_path / "x.npz", x=X)
    out = ["--out", str(tmp_path / "run")]
    return CliRunner().invoke(app, ["capture", "--engine", "onnxruntime", str(file), *out, *words])


def test_the_command_records(tmp_path: Path) -> None:
    done = command(tmp_path, "--inputs", str(tmp_path / "x.npz"), "--set", "optimisation=off")
    assert done.exit_code == 0 and "1 record " in done.output
    assert open_dump(tmp_path / "run").manifest.settings["optimisation"] == "off"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs inputs"),
        (("--inputs", "none.npz"), "not a readable npz"),
        (("--inputs", "m.onnx"), "not a readable npz"),
        (("--inputs", "x.npz", "--set", "optimisation=most"), "no such setting"),
        (("--inputs", "x.npz", "--set", "level=1"), "no such setting"),
    ],
)
def test_the_command_refuses(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = command(
        tmp_path, *(str(tmp_path / w) if w.endswith(("npz", "onnx")) else w for w in words)
    )
    assert said in str(done.exception)
    assert not (tmp_path / "run").exists()
