"""Programs of somebody else, recorded by variables, by the runner, and by `verify capture --`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from verify.dumps.format import open_dump

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys
import torch
from tests.support.plain_models import TinyDecoder

assert sys.argv[1:] == ["one", "two"], sys.argv
model = TinyDecoder()
with torch.no_grad():
    logits, caches = model(torch.tensor([[3, 1, 4]]))
    for _ in range(2):
        logits, caches = model(logits[:, -1:].argmax(-1), caches)
print("it ran")
"""


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith("VERIFY_CAPTURE")}
    environ = {**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        words, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_without_the_variable_nothing_happens_and_nothing_is_loaded() -> None:
    code = "import sys, verify.dumps.auto as a; assert a.recording() is None; print(*sys.modules)"
    done = run(sys.executable, "-c", code)
    loaded = set(done.stdout.split())
    assert done.returncode == 0 and done.stderr == ""
    assert not loaded & {"torch", "numpy", "pyarrow", "msgspec", "verify.dumps.program.attach"}


def test_other_commands_do_not_mind_the_variable(tmp_path: Path) -> None:
    """It is set in the shell for a while, and its folder holds a dump."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    code = "from verify.cli import main; main()"
    done = run(sys.executable, "-c", code, "--version", VERIFY_CAPTURE=str(tmp_path / "run"))
    assert done.returncode == 0 and done.stderr == ""


def test_with_the_variable_torch_is_not_loaded_either(tmp_path: Path) -> None:
    code = "import sys, verify.dumps.auto; print('torch' in sys.modules)"
    done = run(sys.executable, "-c", code, VERIFY_CAPTURE=str(tmp_path / "run"))
    assert done.stdout == "False\n" and "no model was called" in done.stderr


def test_wrong_settings_end_the_program_before_it_begins(tmp_path: Path) -> None:
    code = "import verify.dumps.auto; print('it ran')"
    wrong = {"VERIFY_CAPTURE": str(tmp_path / "run"), "VERIFY_CAPTURE_LEVEL": "everything"}
    done = run(sys.executable, "-c", code, **wrong)
    assert done.returncode != 0 and done.stdout == ""
    assert "this level cannot be had" in done.stderr and "VERIFY_CAPTURE_LEVEL" in done.stderr


def test_what_sitecustomize_finds_wrong_ends_the_program_too(tmp_path: Path) -> None:
    path = f"{ROOT / 'dumps/program/site'}{os.pathsep}{ROOT}"
    wrong = {"VERIFY_CAPTURE": str(tmp_path / "run"), "VERIFY_CAPTURE_LEVEL": "everything"}
    done = run(sys.executable, "-c", "print('it ran')", PYTHONPATH=path, **wrong)
    assert done.returncode == 2 and done.stdout == "" and "cannot be had" in done.stderr


def test_another_sitecustomize_is_loaded_after_ours(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    path = os.pathsep.join([str(ROOT / "dumps/program/site"), str(tmp_path), str(ROOT)])
    code = "import sys, sitecustomize; print(sitecustomize.__file__)"
    done = run(sys.executable, "-c", code, PYTHONPATH=path)
    assert done.stdout.split() == ["theirs", str(tmp_path / "sitecustomize.py")], done.stderr


@pytest.mark.slow
def test_script_by_the_runner_and_by_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    runner = (sys.executable, "-m", "verify.dumps.auto", str(script), "one", "two")
    first = run(*runner, VERIFY_CAPTURE=str(tmp_path / "a"), VERIFY_CAPTURE_LEVEL="full")
    assert first.returncode == 0 and "it ran" in first.stdout, first.stderr
    verify = (sys.executable, "-c", "from verify.cli import main; main()")
    command = (sys.executable, str(script), "one", "two")
    second = run(*verify, "capture", "--out", str(tmp_path / "b"), "--", *command)
    assert second.returncode == 0 and "it ran" in second.stdout, second.stderr
    a, b = open_dump(tmp_path / "a"), open_dump(tmp_path / "b")
    rows = [{(r.tap, r.step): d.rows(r).digest.tolist() for r in d.records()} for d in (a, b)]
    assert rows[0] == rows[1] and {step for _, step in rows[0]} == {0, 1, 2}
    assert a.complete and b.complete and b.manifest.command == list(command)
    refused = run(*verify, "capture", "--prompt", "x", "--out", str(tmp_path / "c"), "--", "true")
    assert refused.returncode == 2 and "--prompt" in refused.stderr
    nothing = run(*verify, "capture", "--out", str(tmp_path / "c"), "--", sys.executable, "-c", "1")
    assert nothing.returncode == 2 and "the command recorded nothing" in nothing.stderr
