"""The complete-model gate on the toy: identity, splits, crashes, resuming, undeclared differences."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.toy_model import save_toy
from verify.cli.app import app
from verify.dumps.format import open_dump
from verify.errors import DumpError, DumpExistsError, UsageError
from verify.suite.config import load_suite
from verify.suite.result import Stream
from verify.suite.run import compare_streams, run_suite, summarise
from verify.suite.streams import STREAMS, read_streams


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("model") / "toy")


def suite_of(folder, model, b="", declared="[]", prompts=None, tokens=3):
    texts = prompts or {"short": 'text = "A sky"', "long": 'text = "The sea is wide."\nrepeat = 4'}
    file = folder / "SUITE.toml"
    file.write_text(
        f'version = 1\nname = "toy"\ntokens = {tokens}\ndeclared = {declared}\n'
        + "".join(f'[[prompt]]\nname = "{name}"\n{text}\n' for name, text in texts.items())
        + f'[shared]\nmodel = "{model}"\n[a]\n[b]\n{b}\n'
    )
    return file


def stream(generated, side="a", **more):
    told = {"prompt": "p", "side": side, "key": "k", "state": "OK", "ended": "natural"}
    return Stream(**{**told, "generated": generated, **more})


@pytest.mark.slow
def test_two_equal_configurations_are_identical_and_say_that_the_limit_ended_them(tmp_path, model):
    result = run_suite(suite_of(tmp_path, model), tmp_path / "out")
    assert result.exit_code == 0 and result.undeclared == [] and result.differences == []
    assert result.summary.startswith("2 of 2 streams identical (2 of them up to the limit")
    assert [p.tokens_a for p in result.pairs] == [3, 3]
    assert result.pairs[1].prompt_tokens > 4 * len("The sea is wide.")
    assert all(len(s.log_probabilities) == 3 and max(s.log_probabilities) <= 0
               for s in result.streams)  # fmt: skip
    # three steps have two ends in between
    assert all(len(s.step_seconds) == 2 and min(s.step_seconds) > 0 for s in result.streams)
    dump = open_dump(tmp_path / "out" / result.streams[0].run)
    assert list(dump.manifest.workload.sequences[0].generated) == result.streams[0].generated


@pytest.mark.slow
def test_a_split_a_crash_and_what_a_resume_repeats(tmp_path, model):
    crash = tmp_path / "crash.py"
    crash.write_text(
        "import sys, subprocess\n"
        "if 'boom' in open(sys.argv[2]).read() and len(sys.argv) == 4:\n"
        "    sys.exit('out of memory')\n"
        "run = 'from verify.cli import main; main()'\n"
        "sys.exit(subprocess.call([sys.executable, '-c', run, 'capture', '--model', sys.argv[3],\n"
        " '--prompt-file', sys.argv[2], '--tokens', '6', '--kv-cache', 'e4m3',\n"
        " '--out', sys.argv[1]]))\n"
    )
    prompts = {name: f'text = "{text}"' for name, text in
               {"one": "Seven", "two": "boom", "three": "The wind"}.items()}  # fmt: skip
    command = f'command = ["python", "{crash}", "{{out}}", "{{prompt_file}}", "{model}"]'
    file = suite_of(tmp_path, model, command, '["settings.kv_cache"]', prompts, tokens=6)
    out = tmp_path / "out"
    result = run_suite(file, out)
    assert [p.state for p in result.pairs][1] == "ERROR"
    assert "out of memory" in result.pairs[1].note and "'two' is an ERROR" in result.summary
    assert result.exit_code == 1
    assert [d.name for d in result.differences if d.weight == "declared"] == ["settings.kv_cache"]
    for pair in (result.pairs[0], result.pairs[2]):
        ours = [s.generated for s in result.streams if s.prompt == pair.prompt]
        first = next((i for i, (x, y) in enumerate(zip(*ours, strict=True)) if x != y), None)
        assert pair.first == first and (pair.state == "IDENTICAL") == (first is None)
    with pytest.raises(DumpExistsError, match="--resume"):
        run_suite(file, out)
    crash.write_text(crash.read_text().replace("'boom'", "'no such text'"))
    again = run_suite(file, out, resume=True)
    assert again.pairs[1].state != "ERROR"
    lines = (out / STREAMS).read_text().splitlines()
    assert len(lines) == 7  # six streams, and the one that was repeated
    assert again.pairs[0] == result.pairs[0]


def test_tokens_are_compared_to_the_last(tmp_path):
    same = compare_streams(stream([1, 2, 3]), stream([1, 2, 3], "b"), tmp_path)
    assert (same.state, same.first) == ("IDENTICAL", None)
    a, b = stream([]), stream([], "b", state="ERROR", error="killed")
    assert compare_streams(a, b, tmp_path).note == "B: killed"


def test_a_shorter_stream_is_no_identical_one(tmp_path, monkeypatch):
    monkeypatch.setattr("verify.suite.run._text", lambda *given: "")
    pair = compare_streams(stream([1, 2]), stream([1, 2, 3], "b"), tmp_path)
    assert (pair.state, pair.first, pair.tokens_a, pair.tokens_b) == ("SPLIT", 2, 2, 3)
    assert "'p' first differs at token 2 (2 against 3 tokens)" in summarise([pair], [])


def test_what_is_not_declared_is_said():
    text = summarise([], ["settings.attn"])
    assert "differ in more than is declared: settings.attn" in text


@pytest.mark.slow
def test_an_undeclared_difference_fails_even_if_the_streams_agree(tmp_path, model):
    prompts = {"short": 'text = "A sky"'}
    file = suite_of(tmp_path, model, 'options = { attn = "eager" }', "[]", prompts, tokens=1)
    done = CliRunner().invoke(app, ["suite", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1 and "(undeclared)" in done.output
    stored = json.loads((tmp_path / "out" / "suite.json").read_text())
    assert "settings.attn" in stored["undeclared"] and stored["schema"] == "verify-suite/1"


def test_an_unfinished_line_is_no_stream_and_another_file_is_refused(tmp_path):
    import msgspec

    whole = msgspec.json.encode(stream([1]))
    (tmp_path / STREAMS).write_bytes(whole + b"\n" + whole[:20])
    assert read_streams(tmp_path) == [stream([1])]
    (tmp_path / STREAMS).write_bytes(b'{"a": 1}\n')
    with pytest.raises(DumpError, match="not the streams"):
        read_streams(tmp_path)


GOOD = 'version = 1\nname = "x"\ntokens = 2\n[a]\n[b]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "this is no suite"),
        (GOOD + "[[prompt]]\nname = 1\n", "this is no suite"),
        (GOOD.replace("tokens", "token"), "this is no suite"),
        (GOOD + "prompt = []\n", "this is no suite"),
        (GOOD + '[[prompt]]\nname = "p"\n', "needs one of text and file"),
        (GOOD + '[[prompt]]\nname = "p"\nfile = "none"\n', "is not there"),
        (GOOD + '[[prompt]]\nname = "p"\ntext = "t"\n' * 2, "twice"),
        (GOOD + '[[prompt]]\nname = "../p"\ntext = "t"\n', "no name of a folder"),
        (GOOD + '[[prompt]]\nname = "p"\ntext = "t"\n[shared]\nout = "x"\n', "sets out itself"),
    ],
)
def test_suites_that_make_no_sense_are_refused(tmp_path, text, message):
    file = tmp_path / "SUITE.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_suite(file)


def test_a_suite_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_suite(Path(tmp_path / "none.toml"))
