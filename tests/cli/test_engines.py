"""`verify capture --engine`: one registry, and options that an engine does not read are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from verify.cli.app import app
from verify.cli.engines import ENGINES, Engine
from verify.dumps.engine_request import EngineRequest
from verify.errors import UsageError

seen: list[EngineRequest] = []


def record(request: EngineRequest) -> list[str]:
    seen.append(request)
    return ["recorded by a stand-in"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "stand-in", Engine("os", "record", frozenset({"threads"})))
    monkeypatch.setattr("os.record", record, raising=False)
    seen.clear()


def run(*words: str) -> object:
    done = CliRunner().invoke(app, ["capture", *words])
    return done.exception if done.exception else done.output


def test_the_engine_gets_the_model_its_options_and_settings() -> None:
    output = run("--engine", "stand-in", "m.x", "--threads", "2", "--set", "a=b=c", "--out", "o")
    assert output == "recorded by a stand-in\n"
    assert seen == [EngineRequest("m.x", Path("o"), {"threads": 2}, {"a": "b=c"})]


@pytest.mark.parametrize(
    "words",
    [
        ("--engine", "none-such", "m.x"),
        ("--engine", "stand-in"),
        ("--engine", "stand-in", "m.x", "n.x"),
        ("--engine", "stand-in", "m.x", "--dtype", "bf16"),
        ("--engine", "stand-in", "m.x", "--set", "a"),
        ("--set", "a=b"),
        ("--inputs", "x.npz"),
    ],
)
def test_what_no_engine_reads_is_refused(words: tuple[str, ...]) -> None:
    assert isinstance(run(*words), UsageError)
    assert not seen
