"""Whole passes in processes of their own: a program that knows nothing of verify, and SmolLM2."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.dumps.format import open_dump
from verify.recapture.run import Plan, recapture

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("toy_program.py")
VERIFY = (sys.executable, "-c", "from verify.cli import main; main()")


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith("VERIFY_CAPTURE")}
    environ = {**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        words, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def first_pass(out: Path, **variables: str) -> None:
    done = run(
        sys.executable, "-m", "verify.dumps.auto", str(PROGRAM),
        VERIFY_CAPTURE=str(out), VERIFY_CAPTURE_LEVEL="hash", VERIFY_CAPTURE_TAPS="*.out",
        **variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def recapture_by_command(*words: str) -> tuple[int, dict[str, Any]]:
    done = run(*VERIFY, "recapture", *words, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_planted_defect_and_noise_in_a_program_of_its_own(tmp_path: Path) -> None:
    first_pass(tmp_path / "a")
    first_pass(tmp_path / "b", FAULT="1")
    faulty = shlex.join(["env", "FAULT=1", sys.executable, str(PROGRAM)])
    noisy = shlex.join(["env", "NOISE=1", sys.executable, str(PROGRAM)])
    dumps = open_dump(tmp_path / "a"), open_dump(tmp_path / "b")
    found = recapture(*dumps, tmp_path / "out", Plan(command_b=faulty))
    assert [each.unlike for each in found.again] == [[], []]
    origin = found.result.origins[0]
    assert (origin.tap, origin.step_a, origin.proven) == ("layers.1.mlp.0.out", 2, True)
    assert found.result.exit_code == 1
    assert open_dump(tmp_path / "out" / "a").manifest.capture["window"] == {"steps": "2"}
    # The same first passes, and a second pass of B with noise of its own.
    found = recapture(*dumps, tmp_path / "noise", Plan(command_b=noisy))
    assert (found.result.verdict, found.result.exit_code) == (Verdict.NON_REPEATABLE, 1)
    finding = found.result.findings[0]
    assert finding.title.startswith("B does not repeat itself") and finding.taps


@pytest.mark.slow
def test_smollm2_with_an_e4m3_cache_names_the_origin_of_a_full_capture(tmp_path: Path) -> None:
    from verify.dumps.hf.load import load_model
    from verify.dumps.hf.record import Request, record_generation

    loaded = load_model("smollm2", dtype="fp32", attn="sdpa")

    def record(name: str, kv_cache: str, level: str, edges: str) -> Path:
        request = Request("smollm2", ("The sky is",), 1, kv_cache=kv_cache, level=level,
                          edges=edges, raw=True, threads=1)  # fmt: skip
        record_generation(request, tmp_path / name, loaded=loaded)
        return tmp_path / name

    sides = {"a": "native", "b": "e4m3"}
    full = bisect(*(open_dump(record(f"full-{s}", kv, "full", "trace")) for s, kv in sides.items()))
    lean = [str(record(side, kv, "hash", "none")) for side, kv in sides.items()]
    commands = [
        f"verify capture --prompt 'The sky is' --tokens 1 --raw --threads 1 --kv-cache {kv}"
        for kv in sides.values()
    ]
    out = tmp_path / "out"
    code, found = recapture_by_command(
        *lean, "--out", str(out), "--command-a", commands[0], "--command-b", commands[1]
    )
    assert code == 1 and found["result"]["verdict"] == "PRECISION", found["result"]["summary"]
    assert (out / "report" / "report.html").is_file() and (out / "recapture.json").is_file()
    assert [each["unlike"] for each in found["again"]] == [[], []]
    layer = "model.layers.0.self_attn.attn.in"
    expected = [o.tap for o in full.origins if o.proven]
    assert expected[:2] == [f"{layer}.k", f"{layer}.v"]
    assert [o["tap"] for o in found["result"]["origins"] if o["proven"]] == expected[:2]
    window = sum(open_dump(out / side).total_bytes for side in sides)
    whole = sum(open_dump(tmp_path / f"full-{side}").total_bytes for side in sides)
    assert window < whole / 4
