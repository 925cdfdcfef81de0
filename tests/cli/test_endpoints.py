"""``verify endpoints``: specs that load and those that do not, exit codes, files, `verify plot`."""

import json
import sys
from pathlib import Path

import pytest

from verify.cli import main

SPEC = """
import torch
from verify.endpoints import Case, Endpoint, EndpointSpec, relations

def make(scale):
    return {"x": scale * torch.arange(1.0, 7.0)}

def other(x):
    return OTHER

SPEC = EndpointSpec(
    endpoints={"a": Endpoint(lambda x: x * 3), "b": Endpoint(other)},
    cases=[Case(f"scale {s}", lambda s=s: make(s)) for s in (1, 2)],
    reference=lambda x: x.double() * 3,
    relations=RELATIONS,
)
"""


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["verify", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    return call


@pytest.fixture
def spec(tmp_path):
    def write(other="x * 3", relations="[]"):
        path = tmp_path / "spec.py"
        path.write_text(SPEC.replace("OTHER", other).replace("RELATIONS", relations))
        return path

    return write


@pytest.mark.parametrize(
    ("other", "relations", "code", "said"),
    [
        ("x * 3", "[]", 0, "EQUAL: 2 cases, bit for bit"),
        ("x * 3.0000002", "[]", 1, "DIFFERENT"),
        ("1 / 0", "[]", 1, "ZeroDivisionError"),
        ("x / 0", "[]", 1, "NaN or infinite"),
        ("x * float('nan')", "[]", 1, "NaN or infinite"),
        ("None", "[]", 1, "gave NoneType, not a tensor"),
        ("x * 3", "[relations.graph_replay()]", 3, "INCOMPLETE"),
        ("x * 3.0000002", "[relations.graph_replay()]", 1, "DIFFERENT"),
    ],
)
def test_exit_codes(run, spec, other, relations, code, said):
    found, output = run("endpoints", spec(other, relations))
    assert found == code
    assert said in " ".join(output.out.split())
    assert max(map(len, output.out.splitlines())) <= 80 + len(str(spec()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SPEC = (", "the spec cannot be loaded"),
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("other = 3", "does not define SPEC"),
        ("SPEC = 3", "not a spec"),
        ("raise SystemError('planted')", "planted"),
        (SPEC.replace("OTHER", "x").replace("RELATIONS", "[3]"), "cannot be loaded"),
    ],
)
def test_a_spec_that_cannot_be_used_is_a_message(run, tmp_path, text, message):
    path = tmp_path / "spec.py"
    path.write_text(text)
    code, output = run("endpoints", path)
    assert code == 2 and message in output.err
    assert "Traceback" not in output.err and output.out == ""


@pytest.mark.parametrize("target", ["nowhere.py", "nowhere_at_all:SPEC", "verify.endpoints:SPEC"])
def test_a_spec_that_is_not_there_is_a_message(run, target):
    code, output = run("endpoints", target)
    assert code == 2 and "error:" in output.err and "Traceback" not in output.err


def test_no_case_selected_names_the_cases(run, spec):
    code, output = run("endpoints", spec(), "--cases", "nothing like it")
    assert code == 2 and "scale 1; scale 2" in output.err


def test_cases_are_selected_and_json_goes_to_the_terminal(run, spec):
    code, output = run("endpoints", spec(), "--cases", "scale 2", "--json")
    result = json.loads(output.out)
    assert code == 0 and result["cases"] == ["scale 2"] and result["exit_code"] == 0


def test_module_and_object(run, spec, monkeypatch):
    monkeypatch.syspath_prepend(spec().parent)
    monkeypatch.delitem(sys.modules, "spec", raising=False)
    assert run("endpoints", "spec:SPEC")[0] == 0
    monkeypatch.delitem(sys.modules, "spec", raising=False)


def test_out_and_plot(run, spec, tmp_path):
    code, _ = run("endpoints", spec("x * 3.0000002"), "--out", tmp_path / "out", "--speed",
                  "--pairs", 5)  # fmt: skip
    assert code == 1
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "endpoints.html", "endpoints.json", "endpoint-floor.png", "endpoint-errors.png",
        "endpoint-ulps.png", "endpoint-speed.png",
    }  # fmt: skip
    code, output = run("plot", tmp_path / "out", "--out", tmp_path / "again", "--format", "svg")
    assert code in (0, None) and "endpoint-floor.svg" in output.out
    first, again = (tmp_path / d / "endpoints.json" for d in ("out", "again"))
    assert first.read_bytes() == again.read_bytes()


def test_plot_of_something_else_is_a_message(run, tmp_path):
    code, output = run("plot", tmp_path, "--out", tmp_path / "again")
    assert code == 2 and "no result of verify endpoints" in output.err


def test_a_folder_of_something_else_is_refused_before_the_work(run, spec, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file.txt").write_text("")
    code, output = run("endpoints", spec("1 / 0"), "--out", tmp_path / "mine")
    assert code == 2 and "not a report" in output.err and output.out == ""


def test_sass_without_a_disassembler_says_what_to_install(run, spec, monkeypatch):
    monkeypatch.setattr("verify.endpoints.sass.find_nvdisasm", lambda: None)
    code, output = run("endpoints", spec(), "--sass")
    assert code == 2 and "nvidia-cuda-nvdisasm" in output.err


def test_sass_of_what_is_no_build_is_not_run(run, spec, monkeypatch):
    monkeypatch.setattr("verify.endpoints.sass.find_nvdisasm", lambda: str(Path(sys.executable)))
    code, output = run("endpoints", spec(), "--sass")
    assert code == 3 and "ran no build of machine code" in output.out
