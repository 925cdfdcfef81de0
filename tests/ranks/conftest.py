"""Runs of the tensor-parallel example: one group of processes a number of ranks, for all tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNS = Path(__file__).with_name("many_runs.py")

# Ranks -> runs: name, fault, its rank.
PLAN: dict[int, list[tuple[str, str, int]]] = {
    1: [("plain", "", 0)],
    2: [("plain", "", 0), ("again", "", 0), ("bias", "bias", 1), ("partial", "partial", 1)],
    4: [("plain", "", 0), ("scale", "scale", 2), ("reduce", "reduce", 2), ("again", "reduce", 2),
        ("bias", "bias", 2)],
}  # fmt: skip
PATIENCE = 240


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a run `<ranks>/<name>` for each entry of the plan, and `weights.safetensors`.

    Workers of a parallel test run share it: the first one to come makes it.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "rank-runs"
    try:
        root.mkdir()
    except FileExistsError:
        until = time.monotonic() + PATIENCE
        while not (root / "done").exists():
            assert time.monotonic() < until, "the other worker did not make the runs"
            time.sleep(0.2)
        return root
    for ranks, plan in PLAN.items():
        _launch(root, ranks, plan)
    (root / "done").touch()
    return root


@pytest.fixture(scope="session")
def weights(runs: Path) -> str:
    """The weights of the whole model, as safetensors."""
    return str(runs / "weights.safetensors")


def _launch(root: Path, ranks: int, plan: list[tuple[str, str, int]]) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(RUNS), str(root), json.dumps(plan)],
            env={**os.environ, **place, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
