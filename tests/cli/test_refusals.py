"""Uses that cannot work: refused with what to capture next time, as a command to copy."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import sys

from typer.testing import CliRunner

from tests.support.toy_model import save_toy
from tests.support.toy_runs import Toy, record
from verify.bisect.again import recapture
from verify.cli.app import app
from verify.dumps.format import open_dump
from verify.errors import ModelError, NotComparableError, UsageError, VerifyError

REPLAYS = [("replay",), ("swap",), ("bisect", "--replay")]


def run(*words: object):
    """As from a shell: a capture notes its own command line."""
    before, sys.argv = sys.argv, ["verify", *map(str, words)]
    try:
        return CliRunner(env={"COLUMNS": "80"}).invoke(app, sys.argv[1:])
    finally:
        sys.argv = before


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base, its tokens under eager attention (eager), digests alone (digests), another prompt
    (other), another tape (taped), and two numpy runs without a model (bare, bare2)."""
    folder = tmp_path_factory.mktemp("runs")
    save_toy(folder / "toy")

    def capture(name: str, *options: object, prompt: str = "Hello there") -> None:
        words = ("-m", folder / "toy", "-p", prompt, "--tokens", 2, *options, "-o", folder / name)
        assert run("capture", *words).exit_code == 0

    capture("base")
    eager = ("--tape", folder / "base", "--attn", "eager")
    capture("eager", *eager)
    capture("digests", *eager, "--level", "digest")
    capture("other", prompt="Good evening")
    capture("longer", "--tokens", 3)
    capture("taped", "--tape", folder / "longer")
    record(folder / "bare", Toy({"p#0": [1, 2, 3]}))
    record(
        folder / "bare2", Toy({"p#0": [1, 2, 3]}, faults={"layers.0.mlp.out": lambda v, r: v * 2})
    )
    return folder


def refused(runs: Path, command: tuple[str, ...], a: str, b: str, *options: object) -> VerifyError:
    name, *rest = command
    done = run(name, runs / a, runs / b, *rest, *options)
    assert isinstance(done.exception, VerifyError), done.output
    return done.exception


@pytest.mark.parametrize("command", REPLAYS)
def test_a_dump_without_inputs_names_the_capture_that_has_them(runs, command):
    error = refused(runs, command, "base", "digests", "--model-a", runs / "toy")
    assert isinstance(error, NotComparableError) and error.exit_code == 3
    assert "there are no inputs to replay" in error.what
    assert error.hint is not None
    words = shlex.split(error.hint)
    assert words[:2] == ["verify", "capture"] and words[-2:] == ["--out", f"{runs}/digests-again"]
    assert words[words.index("--level") + 1] == "full" and words.count("--level") == 1


def test_the_command_of_a_refusal_can_be_run_as_it_stands(runs):
    error = refused(runs, ("replay",), "base", "digests", "--model-a", runs / "toy")
    words = shlex.split(error.hint or "")
    if not Path(words[-1]).exists():
        assert run(*words[1:]).exit_code == 0
    done = run("replay", runs / "base", words[-1], "--model-a", runs / "toy")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", [("replay",), ("swap",)])
@pytest.mark.parametrize(
    ("a", "b", "title"),
    [
        ("base", "other", "The runs have no sequence in common"),
        ("eager", "taped", "The runs were forced along different tapes"),
    ],
)
def test_other_prompts_and_tapes_name_the_capture_with_those_of_a(runs, command, a, b, title):
    error = refused(runs, command, a, b, "--model-a", runs / "toy")
    assert isinstance(error, NotComparableError) and error.what == title
    words = shlex.split(error.hint or "")
    assert words[words.index("--prompt") + 1] == "Hello there"
    assert words[words.index("--tape") + 1] == str(runs / a)
    assert words.count("--tape") == words.count("--prompt") == 1


@pytest.mark.parametrize(("a", "b"), [("base", "other"), ("eager", "taped")])
def test_bisect_reports_them_and_loads_no_model_for_it(runs, a, b):
    done = run("bisect", runs / a, runs / b, "--replay", "--model-a", runs / "nowhere")
    assert done.exit_code == 3 and done.stdout.startswith("NOT_COMPARABLE")
    assert "give B the prompts and tokens of A: verify capture" in " ".join(done.stdout.split())


def test_equal_runs_are_not_replayed(runs):
    done = run("bisect", runs / "base", runs / "base", "--model-a", runs / "nowhere")
    assert done.exit_code == 0 and done.stdout.startswith("IDENTICAL")


@pytest.mark.parametrize("command", REPLAYS)
def test_a_model_that_is_not_there_says_how_to_name_one(runs, command):
    error = refused(runs, command, "base", "eager", "--model-a", runs / "nowhere")
    assert isinstance(error, ModelError) and "--model-a" in (error.hint or "")


@pytest.mark.parametrize("command", REPLAYS)
def test_runs_of_no_model_of_ours_point_to_the_library(runs, command):
    error = refused(runs, command, "bare", "bare2")
    assert isinstance(error, NotComparableError)
    assert "verify.replay.run.replay" in (error.hint or "")


def test_a_swap_that_cannot_apply_says_why(runs):
    model = ("--model-a", runs / "toy")
    error = refused(runs, ("swap",), "base", "base", *model)
    assert "no difference of logits" in error.what and "--tape" in (error.hint or "")
    error = refused(runs, ("swap",), "base", "eager", *model, "--tap", "nowhere.*")
    assert isinstance(error, UsageError) and error.exit_code == 2
    error = refused(runs, ("swap",), "base", "eager", *model, "--position", 999)
    assert "no difference of logits" in error.what


def test_a_run_of_another_loop_is_told_what_has_to_change(runs):
    dump = open_dump(runs / "bare")
    assert recapture(dump, level="full") == (
        "capture again, as `verify capture --level full ...` does"
    )
