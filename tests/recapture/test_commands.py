"""From the command in a manifest to the command of a second pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.again import recapture as advised
from verify.dumps.format import Dump
from verify.dumps.window import Spans
from verify.errors import ArgumentError, UsageError
from verify.recapture.commands import Order, run_again, with_window

ORDER = Order(Spans.parse("3:5", "steps"), ["default:layers.1.*", "logits"], "trace")


def dump_of(path: Path, command: list[str], chunks: int = 2, choices: int = 8) -> Dump:
    """A run whose prompt takes ``chunks`` steps; the last of them and each later step chooses."""
    with SyntheticRun(path, {"text": [1, 2]}) as run:
        run.writer.manifest.command = command
        for step in range(chunks - 1 + choices):
            with run.step():
                run.add("x.out", [[1.0]], rows=[("text", step)])
                if step >= chunks - 1:
                    run.add("tokens.out", [[5]], "b t", rows=[("text", step)], dtype="int64")
    return run.open()


def test_options_that_select_are_replaced_and_others_kept(tmp_path: Path) -> None:
    given = (
        "-p Hi --tokens=9 --taps a --taps b --raw --kernels --kv-cache e4m3 --level hash --edges none "
        "-o old --byte-budget 2G --steps 0 --rows 3"
    )
    words = with_window(given.split(), dump_of(tmp_path / "run", []), ORDER)
    assert " ".join(words) == (
        "--prompt Hi --raw --kernels --kv-cache e4m3 --level full --edges trace --steps 3:5 --tokens 4 "
        "--taps default:layers.1.* --taps logits"
    )


@pytest.mark.parametrize(
    ("steps", "tokens"),
    [("0", 1), ("1", 1), ("2", 2), ("3:5", 4), ("8", 8), ("100", 8), ("5:", 32)],
)
def test_generation_ends_with_the_window(tmp_path: Path, steps: str, tokens: int) -> None:
    order = Order(Spans.parse(steps, "steps"), ["logits"], "trace", rows="0:9", byte_budget=7)
    words = with_window(["--prompt", "Hi"], dump_of(tmp_path / "run", []), order)
    assert words[words.index("--tokens") + 1] == str(tokens)
    assert words[-4:] == ["--rows", "0:9", "--byte-budget", "7"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "no command to run again"),
        (["python", "x.py", "--api-key", "[redacted]"], "had secrets"),
        (["x.py", "--fast"], "not how it was started"),
    ],
)
def test_runs_without_a_command_are_refused(tmp_path: Path, command: list[str], said: str) -> None:
    dump = dump_of(tmp_path / "run", command)
    with pytest.raises(UsageError, match=said) as error:
        run_again(dump, None, ORDER, tmp_path / "out", "--command-b")
    assert "--command-b 'COMMAND'" in str(error.value)


def test_command_that_records_nothing_is_told_with_its_last_words(tmp_path: Path) -> None:
    dump = dump_of(tmp_path / "run", [])
    command = f"{sys.executable} -c \"import sys; sys.exit('no such model')\""
    with pytest.raises(UsageError, match="recorded nothing") as error:
        run_again(dump, command, ORDER, tmp_path / "out", "--command-a")
    assert "exit code 1; it said: no such model" in str(error.value)


def test_command_line_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="not a command line"):
        run_again(dump_of(tmp_path / "run", []), "python 'x", ORDER, tmp_path / "o", "--command-a")


def test_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        run_again(dump_of(tmp_path / "run", ["no-such-program"]), None, ORDER, tmp_path / "o", "x")


def test_advice_for_a_program_is_the_command_that_records_it(tmp_path: Path) -> None:
    dump = dump_of(tmp_path / "run", ["python", "x.py", "--fast"])
    assert "as `verify capture --level full ...`" in advised(dump, level="full")
    dump.manifest.capture["started"] = {"cwd": "/somewhere"}
    expected = f"verify capture --level full --out {dump.path}-again -- python x.py --fast"
    assert advised(dump, level="full") == expected
