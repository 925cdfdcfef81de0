"""The command `verify inspect`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dumps.format.small_dumps import write_dump
from verify.cli.app import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `verify inspect` in this process: exit code, stdout, stderr."""

    def inspect(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["verify", "inspect", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), said.out, said.err

    return inspect


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "run")


def test_what_is_in_it(run: Run, dump: Path) -> None:
    code, out, _ = run(dump)
    assert code == 0
    assert "complete" in out and "tokens.in" in out and "3 prompt tokens" in out
    assert "Why is the" in out


def test_as_json(run: Run, dump: Path) -> None:
    code, out, _ = run(dump, "--json", "--check")
    found = json.loads(out)
    assert code == 0 and found["complete"] and found["parts"] == 3
    assert found["verified_bytes"] == 5 * 8 + 5 * 32
    assert [tap["tap"] for tap in found["taps"]] == ["tokens.in", "a.out", "b.in.0"]


def test_numbers_of_a_tap_in_a_step(run: Run, dump: Path) -> None:
    code, out, _ = run(dump, "--tap", "a.*", "--step", "1")
    assert code == 0 and out.count("a.out · step") == 1 and "max |x|" in out
    code, out, _ = run(dump, "--tap", "*", "--json")
    assert code == 0 and len(json.loads(out)) == 9
    code, out, _ = run(dump, "--step", "2")
    assert code == 0 and out.count("step 2 · record") == 3


def test_a_partial_dump_says_so(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(write_dump(tmp_path / "open", close=False))
    assert code == 0 and "PARTIAL" in out and "did not come to its end" in out


def test_trouble_is_a_message_and_2(run: Run, dump: Path, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        code, out, err = run(*words)
        assert code == 2 and out == "" and "Traceback" not in err and err.startswith("error:")
        return err

    assert "there is no dump" in refused(tmp_path / "absent")
    assert "no tap of this dump matches" in refused(dump, "--tap", "z*")
    assert "there is no such step" in refused(dump, "--step", "9")
    path = dump / "rank-0" / "part-00001" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xee")
    assert "other words than when it was written" in refused(dump, "--check")
    path.unlink()
    assert "a file of the dump is missing" in refused(dump)
