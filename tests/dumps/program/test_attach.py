"""Which model of a process is recorded, where, and how its dump ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.plain_models import TinyDecoder
from verify.dumps.format import open_dump
from verify.dumps.program import attach
from verify.dumps.program.attach import _Process, switch_on
from verify.dumps.program.settings import read_settings
from verify.errors import DumpExistsError, ModelError

IDS = torch.tensor([[3, 1, 4]])


@pytest.fixture
def call() -> Iterator[Any]:
    """The attribute that is watched is as before afterwards."""
    before = nn.Module.__call__
    yield before
    nn.Module.__call__ = before  # type: ignore[method-assign]


def started(out: Path, **variables: str) -> _Process:
    environ = {"VERIFY_CAPTURE": str(out)} | {
        f"VERIFY_CAPTURE_{name}": value for name, value in variables.items()
    }
    process = _Process(read_settings(environ), environ)
    process.watch(sys.modules["torch.nn.modules.module"])
    return process


def test_first_module_with_parameters_from_its_first_call_on(tmp_path: Path, call: Any) -> None:
    process = started(tmp_path / "run")
    nn.ReLU()(torch.ones(2))  # a transform or a loss is no model
    model = TinyDecoder()
    expected = model(IDS)[0] if process.run else None
    assert expected is None
    assert torch.equal(model(IDS)[0], TinyDecoder()(IDS)[0])
    assert nn.Module.__call__ is call  # nobody looks at calls any more
    process.finish()
    dump = open_dump(tmp_path / "run")
    assert dump.complete and dump.manifest.model.name == "TinyDecoder"
    assert {r.step for r in dump.records()} == {0}
    assert "head.out" in {r.tap for r in dump.records()}
    assert dump.manifest.capture["started"]["model"] == "TinyDecoder"
    assert dump.manifest.command == sys.orig_argv


def test_a_class_is_chosen_by_glob(tmp_path: Path, call: Any) -> None:
    process = started(tmp_path / "run", MODEL="Bloc*")
    TinyDecoder()(IDS)
    process.finish()
    dump = open_dump(tmp_path / "run")
    assert dump.manifest.model.name == "Block"
    assert "norm.out" in {r.tap for r in dump.records()}


def test_window_and_level(tmp_path: Path, call: Any) -> None:
    process = started(tmp_path / "run", LEVEL="full", STEPS="1", TAPS="layers.1.*,logits")
    model = TinyDecoder()
    for _ in range(3):
        model(IDS)
    process.finish()
    records = [r for r in open_dump(tmp_path / "run").records() if r.tap != "tokens.in"]
    assert {r.step for r in records} == {1} and {r.kept for r in records} <= {"full", "same"}
    assert all(r.tap.startswith("layers.1.") for r in records)


def test_model_that_runs_in_a_thread_of_its_own(tmp_path: Path, call: Any) -> None:
    process = started(tmp_path / "run", LEVEL="full")
    model = TinyDecoder()
    thread = threading.Thread(target=lambda: model(IDS))
    thread.start()
    thread.join()
    process.finish()
    dump = open_dump(tmp_path / "run")
    assert dump.complete
    out = next(r for r in dump.records() if r.tap == "layers.0.norm.out")
    assert {source.kind for source in out.inputs} == {"record", "weight"}


def test_wrong_taps_are_said_before_the_model_computes(tmp_path: Path, call: Any) -> None:
    started(tmp_path / "run", TAPS="no.such.tap")
    model = TinyDecoder()
    model.embed.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(ModelError, match="no tap of the model has this name"):
        model(IDS)


def test_nothing_called_is_said(
    tmp_path: Path, call: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    started(tmp_path / "run", MODEL="Other").finish()
    said = capsys.readouterr().err
    assert "no model was called whose class is 'Other': nothing recorded" in said
    assert not (tmp_path / "run").exists()


def test_exception_that_ends_the_process_leaves_a_partial_dump(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = started(tmp_path / "run")
    TinyDecoder()(IDS)
    monkeypatch.setattr(sys, "last_value", ValueError("of the script"), raising=False)
    process.finish()
    assert not open_dump(tmp_path / "run").complete
    assert "partial, after ValueError" in capsys.readouterr().err


def test_folder_that_is_taken_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DumpExistsError):
        switch_on({"VERIFY_CAPTURE": str(tmp_path)})
    assert attach.recording() is None


def test_later_processes_of_a_run_have_folders_of_their_own(tmp_path: Path, call: Any) -> None:
    for _ in range(2):
        process = started(tmp_path / "run", SESSION="1")
        TinyDecoder()(IDS)
        process.finish()
    assert open_dump(tmp_path / "run").complete and open_dump(tmp_path / "run-2").complete


def test_ranks_have_folders_of_their_own(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    process = started(tmp_path / "run")
    TinyDecoder()(IDS)
    process.finish()
    assert open_dump(tmp_path / "run-rank-3").complete


def test_forked_child_keeps_its_hands_off(tmp_path: Path, call: Any) -> None:
    process = started(tmp_path / "run")
    model = TinyDecoder()
    model(IDS)
    run = process.run
    assert run is not None
    records = run.records
    process._leave()  # what a fork calls in the child
    model(IDS)
    assert run.records == records
    process.finish()
    assert not open_dump(tmp_path / "run").complete
