"""Samples of the benchmarks that damage dumps and kill captures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ("dump_corruption.py", ["--count", "60", "--seed", "5"], "60 trials, 0 faults"),
        ("dump_corruption.py", ["--count", "40", "--reseal"], "40 trials, 0 faults"),
        ("dump_sigkill.py", ["--kills", "6", "--seed", "3"], "0 faults"),
        ("dump_robustness.py", ["damage", "--count", "25", "--seed", "7"], "25 trials, 0 faults"),
        ("dump_robustness.py", ["kills", "--count", "2", "--seed", "7"], "2 trials, 0 faults"),
    ],
)
def test_a_sample(script: str, options: list[str], expected: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and expected in done.stdout, done.stdout + done.stderr
