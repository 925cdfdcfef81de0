"""The commands `verify compare` and `verify bisect`: output, exit codes, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.toy_runs import Toy, record
from verify.cli.app import main

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `verify` in this process: exit code, stdout, stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["verify", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        said = capfdbinary.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), said.out.decode(), said.err.decode()

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base, same, other (attention of layer 1 differs), partial."""
    folder = tmp_path_factory.mktemp("runs")
    fault = {"layers.1.attn.out": lambda values, rows: values * np.float32(1.5)}
    record(folder / "base", Toy(PROMPT))
    record(folder / "same", Toy(PROMPT, chunk=4))
    record(folder / "other", Toy(PROMPT, faults=fault))
    record(folder / "partial", Toy(PROMPT, complete=False))
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize("command", ["compare", "bisect"])
@pytest.mark.parametrize(("other", "code"), [("same", 0), ("other", 1), ("partial", 3)])
def test_exit_codes(run: Run, runs: Path, command: str, other: str, code: int) -> None:
    assert run(command, runs / "base", runs / other)[0] == code


@pytest.mark.parametrize("command", ["compare", "bisect"])
@pytest.mark.parametrize("other", ["empty", "missing"])
def test_what_is_no_dump_is_a_message_and_exit_2(
    run: Run, runs: Path, command: str, other: str
) -> None:
    code, out, err = run(command, runs / "base", runs / other)
    assert (code, out) == (2, "")
    assert "error:" in err and str(runs / other) in err and "Traceback" not in err


@pytest.mark.parametrize(("other", "code"), [("same", 0), ("other", 1), ("partial", 125),
                                              ("missing", 125)])  # fmt: skip
def test_codes_for_git_bisect(run: Run, runs: Path, other: str, code: int) -> None:
    assert run("bisect", runs / "base", runs / other, "--bisect-exit")[0] == code


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("bisect", "--accept", "anything"), "this verdict cannot be accepted"),
        (("bisect", "--fail-on", "logits"), "nothing of that name can fail a run"),
        (("compare", "--tap", "nowhere.*"), "no tap of either run matches"),
    ],
)
def test_wrong_arguments(run: Run, runs: Path, words: tuple[str, ...], text: str) -> None:
    command, *options = words
    code, _, err = run(command, runs / "base", runs / "same", *options)
    assert code == 2
    assert text in err


def test_the_table_names_the_first_difference(run: Run, runs: Path) -> None:
    _, out, _ = run("compare", runs / "base", runs / "other", "--tap", "layers.1.*")
    first = out[out.index("First difference") :]
    assert "layers.1.attn.out" in first
    assert "sequence p#0, position 0" in first


def test_json_is_the_whole_result(run: Run, runs: Path) -> None:
    code, out, _ = run("bisect", runs / "base", runs / "other", "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["exit_code"]) == (1, "DEFECT", 1)
    assert found["origins"][0]["tap"] == "layers.1.attn.out"
    assert found["command"][:2] == ["verify", "bisect"]
    compared = json.loads(run("compare", runs / "base", runs / "other", "--json")[1])
    assert len(compared["taps"]) == 28


def test_accepting_is_named_by_the_command_line(run: Run, runs: Path) -> None:
    accept = ("--accept", "defect", "--accept", "unresolved")
    assert run("bisect", runs / "base", runs / "other", *accept)[0] == 0


@pytest.mark.slow
def test_a_report_is_written_where_it_was_asked_for(run: Run, runs: Path, tmp_path: Path) -> None:
    code, out, _ = run("bisect", runs / "base", runs / "other", "--out", tmp_path / "report")
    assert code == 1
    assert (tmp_path / "report" / "report.html").stat().st_size > 0
    assert json.loads((tmp_path / "report" / "report.json").read_text())["verdict"] == "DEFECT"
    assert "report.html" in out.replace("\n", "")


@pytest.mark.parametrize(("command", "needed"), [("compare", []), ("bisect", ["scipy"])])
def test_comparing_needs_neither_torch_nor_matplotlib(
    runs: Path, command: str, needed: list[str]
) -> None:
    script = f"""
import sys
from verify.cli.app import main
sys.argv = ["verify", {command!r}, {str(runs / "base")!r}, {str(runs / "other")!r}]
try:
    main()
except SystemExit:
    pass
print([name for name in ("torch", "matplotlib", "scipy", "transformers") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == str(needed)
