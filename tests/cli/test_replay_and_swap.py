"""verify replay, verify swap and verify bisect --replay at the command line, on the toy."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from typer.testing import CliRunner

from tests.support.toy_model import save_toy
from verify.cli.app import app
from verify.errors import ModelError, NotComparableError


def run(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    model = save_toy(folder / "toy")
    common = ("capture", "-m", model, "-p", "Hello there", "--tokens", 2)
    assert run(*common, "-o", folder / "a").exit_code == 0
    tape = ("--tape", folder / "a")
    assert run(*common, *tape, "--attn", "eager", "-o", folder / "b").exit_code == 0
    assert run(*common, *tape, "--kv-cache", "e4m3", "-o", folder / "k").exit_code == 0
    assert run(*common, *tape, "--level", "digest", "-o", folder / "d").exit_code == 0
    return folder, model


def test_replay_prints_parts_within_80_columns(runs):
    folder, model = runs
    done = run("replay", folder / "a", folder / "b", "--model-a", model)
    assert done.exit_code == 0, done.output
    assert "2  ROUNDING" in done.stdout and "local" in done.stdout
    assert "both models reproduce their own runs bit by bit" in " ".join(done.stdout.split())
    paths = (str(folder),)
    lines = [x for x in done.stdout.splitlines() if not any(p in x for p in paths)]
    assert max(map(len, lines)) <= 80


def test_replay_as_json_of_chosen_taps(runs):
    folder, model = runs
    glob = "model.layers.1.*.attn.out"
    done = run("replay", folder / "a", folder / "b", "--model-a", model, "--tap", glob, "--json")
    found = json.loads(done.stdout)
    assert [t["tap"] for t in found["taps"]] == ["model.layers.1.self_attn.attn.out"]
    assert found["taps"][0]["status"] == "ROUNDING" and found["passes"] == 4


def test_bisect_asks_the_replay(runs):
    folder, model = runs
    assert run("bisect", folder / "a", folder / "b").exit_code == 1
    done = run("bisect", folder / "a", folder / "b", "--model-a", model)
    assert done.exit_code == 0 and done.stdout.startswith("ROUNDING")


def test_swap_prints_its_trials(runs):
    folder, model = runs
    done = run("swap", folder / "a", folder / "k", "--model-a", model, "--tap", "*.attn.in.[kv]")
    assert done.exit_code in (0, 1), done.output
    assert "everything up to" in done.stdout and "margin" in done.stdout
    lines = [x for x in done.stdout.splitlines() if str(folder) not in x]
    assert max(map(len, lines)) <= 80


def test_no_model_and_no_tensors_are_refused_with_the_way_out(runs):
    folder, model = runs
    lost = run("replay", folder / "a", folder / "b", "--model-a", folder / "nowhere")
    assert isinstance(lost.exception, ModelError) and "--model-a" in lost.exception.hint
    empty = run("swap", folder / "a", folder / "d", "--model-a", model)
    assert isinstance(empty.exception, NotComparableError)
    assert "--level full" in empty.exception.hint
