"""The command `verify capture`: what it writes and says, and its exit codes."""

from __future__ import annotations

import sys

import pytest

from tests.support.toy_model import save_toy
from verify.cli.app import main
from verify.dumps.format import open_dump


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("model") / "toy")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path, toy_folder):
    """Runs `verify capture` on the toy in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def capture(*words):
        command = ["verify", "capture", "--model", str(toy_folder), "--tokens", "2"]
        monkeypatch.setattr(sys, "argv", [*command, *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return capture


def test_a_run_is_recorded_and_summed_up(run, tmp_path):
    code, out, _ = run("--prompt", "sky", "--prompt", "sea", "--out", "here", "--batch", 4)
    assert code == 0
    dump = open_dump(tmp_path / "here")
    assert dump.complete
    names = list(dump.tokens())
    assert [name.partition("#")[2] for name in names] == ["0", "0", "1", "1"]
    assert all(name in out for name in names)
    assert f"{len(dump.records())} records" in out
    assert "here" in out
    assert dump.manifest.command[1:3] == ["capture", "--model"]


def test_the_default_folder_is_numbered(run, tmp_path):
    for _ in range(2):
        assert run("--prompt", "sky", "--taps", "logits")[0] == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [
        "toy-fp32-sdpa",
        "toy-fp32-sdpa-2",
    ]


def test_a_prompt_may_lie_in_a_file(run, tmp_path):
    (tmp_path / "prompt.txt").write_text("sky")
    assert run("--prompt-file", "prompt.txt", "--out", "file", "--taps", "logits")[0] == 0
    assert run("--prompt", "sky", "--out", "text", "--taps", "logits")[0] == 0
    assert list(open_dump("file").tokens()) == list(open_dump("text").tokens())


def test_an_existing_folder_is_left_alone(run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("kept")
    code, _, err = run("--prompt", "sky", "--out", "mine")
    assert code == 2
    assert "never overwrites" in err
    assert (tmp_path / "mine" / "notes").read_text() == "kept"


def test_a_spent_budget_keeps_the_steps_before(run, tmp_path):
    code, _, err = run("--prompt", "sky", "--out", "small", "--byte-budget", "1M", "--tokens", 50)
    assert code == 2
    assert "budget" in err
    dump = open_dump(tmp_path / "small")
    assert not dump.complete
    assert len(dump.records()) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no prompt is given"),
        (("--prompt-file", "absent.txt"), "cannot be read"),
        (("--prompt", "sky", "--taps", "*.qproj.out"), "no tap of the model has this name"),
        (("--prompt", "sky", "--tape", "absent"), "there is no dump"),
        (("--prompt", "sky", "--byte-budget", "much"), "not a number of bytes"),
        (("--prompt", "sky", "--dtype", "fp8"), "unknown dtype"),
        (("--prompt", "sky", "--level", "all"), "unknown capture level"),
        (("--prompt", "sky", "--edges", "guess"), "unknown edges"),
        (("--prompt", "sky", "--model", "absent"), "there is no such model"),
        (("--prompt", "sky", "--no-such-option"), "No such option"),
    ],
)
def test_bad_input_has_a_message_and_leaves_nothing(run, tmp_path, words, message):
    code, _, err = run(*words, "--out", "new")
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "new").exists()
