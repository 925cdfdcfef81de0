"""Every command and every block of Python in README and docs/ runs as it is printed."""

import os
import re
import runpy
import subprocess
import sys

import pytest
import torch
import typer

from tests.support.documents import REASONS, ROOT, Step, pages, steps
from verify.cli import main
from verify.cli.app import app

COMPARING = {
    "bisect",
    "compare",
    "certify",
    "endpoints",
    "replay",
    "swap",
    "gate",
    "suite",
    "env",
    "taps",
}
"""Commands whose exit code says what they found: 0, 1 and 3 are answers, 2 is a mistake."""

PAGES = {str(page.relative_to(ROOT)): steps(page) for page in pages()}


def call(arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["verify", *arguments])
    threads = torch.get_num_threads()
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    finally:
        torch.set_num_threads(threads)
    return 0


def run_python(text, folder):
    file = folder / "test_block.py"
    file.write_text(text)
    if "def test_" not in text:
        runpy.run_path(str(file), run_name="__main__")
        return
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:verify"]
    options += ["-p", "verify.pytest_plugin.plugin", "test_block.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name in PAGES if PAGES[name]])
def test_what_the_page_tells_to_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("examples", "benchmarks"):
        os.symlink(ROOT / folder, tmp_path / folder)
    for step in PAGES[page]:
        if step.kind == "synopsis" or step.reason:
            continue
        place = f"{page}:{step.line}: {step.text}"
        if step.kind == "python":
            run_python(step.text, tmp_path)
            continue
        code = call(step.words, monkeypatch)
        allowed = {0, 1, 3} if step.words[0] in COMPARING else {0}
        assert code in allowed, f"{place}\nexit code {code}\n{capsys.readouterr().err}"


def options_of(words):
    """The options that a command, or a command of a group, knows."""
    command = typer.main.get_command(app)
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    else:
        assert not hasattr(command, "commands") or len(words) < 2
    assert command is not typer.main.get_command(app), f"no command {words[0]}"
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


ALL = [(page, step) for page in PAGES for step in PAGES[page] if step.kind != "python"]


@pytest.mark.parametrize(("page", "step"), ALL, ids=[f"{p}:{s.line}" for p, s in ALL])
def test_commands_and_options_exist(page, step: Step):
    own, _, passed_on = step.text.split("#")[0].partition(" -- ")
    for words in (own.split()[1:], ["capture", *passed_on.split()]):
        named = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(words)))
        assert named <= options_of(words) | {"-h", "--help"}, f"{page}:{step.line}"


def test_only_known_reasons_keep_a_block_from_running():
    said = {step.reason for found in PAGES.values() for step in found if step.reason}
    assert all(any(reason.startswith(known) for known in REASONS) for reason in said), said


def test_the_pages_hold_commands():
    assert sum(step.kind == "verify" for step in PAGES["README.md"]) >= 15


def test_a_wrong_command_would_be_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```\nverify bisect A B [--nonsense]\n```\n\n    verify compare runs/a runs/b\n"
    )
    first, second = steps(page)
    assert (first.kind, second.kind, second.line) == ("synopsis", "verify", 5)
    with pytest.raises(AssertionError):
        test_commands_and_options_exist("page.md", first)
