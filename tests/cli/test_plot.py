"""The command `verify plot`: files, refusals, and that nothing is written where something is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.toy_runs import Toy, record
from verify.cli.app import main
from verify.report.plots import FORMATS

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base, other (attention of layer 1 differs)."""
    folder = tmp_path_factory.mktemp("runs")
    fault = {"layers.1.attn.out": lambda values, rows: values * np.float32(1.5)}
    record(folder / "base", Toy(PROMPT))
    record(folder / "other", Toy(PROMPT, faults=fault))
    return folder


def _run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["verify", "plot", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_figures_and_page_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x"
    assert _run(monkeypatch, runs / "base", runs / "other", "--out", out, "--format", "svg") == 0
    names = {path.name for path in out.iterdir()}
    assert {"report.html", "report.json", "growth-depth.svg", "heatmap.svg"} <= names
    assert not [name for name in names if name.endswith(".png")]
    said = capsys.readouterr().out
    assert "layers.1.attn.out" in said and str(out / "report.html") in said
    assert "verify plot" in (out / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "gif"), "unknown figure format"),
        ((), "the directory holds something that is not a report"),
    ],
)
def test_refusals_come_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "mine.txt").write_text("")
    # The runs do not exist: were they looked at first, the message would be about them.
    assert _run(monkeypatch, "no-run", "no-run", "--out", tmp_path, *options) == 2
    said = capsys.readouterr()
    assert message in said.err and said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_missing_runs_are_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _run(monkeypatch, "no-run", "no-run", "--out", tmp_path / "x") == 2
    assert "no-run" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_formats_are_those_of_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert _run(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    assert all(name in said for name in FORMATS)
