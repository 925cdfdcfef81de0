"""A capture that is killed leaves every finished step readable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from verify.dumps.format import open_dump

PROGRAM = """
import sys, torch
from tests.support.plain_models import TinyDecoder
from verify.dumps import capture
model = TinyDecoder()
with capture(model, sys.argv[1]):
    caches = None
    for _ in range(100_000):
        _, caches = model(torch.tensor([[1]]), caches)
"""
STEPS = 5


def test_sigkill_leaves_whole_steps(tmp_path):
    path = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    try:
        part = path / "rank-0" / f"part-{STEPS - 1:05d}"
        deadline = time.monotonic() + 120
        while not part.exists():
            assert child.poll() is None, "the child ended by itself"
            assert time.monotonic() < deadline, "no step was committed"
            time.sleep(0.01)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    dump = open_dump(path)
    assert not dump.complete
    taps = {}
    for record in dump.records():
        taps.setdefault(record.step, set()).add(record.tap)
        assert dump.read_words(record).shape == (record.n_rows, record.row_length)
    assert len(taps) >= STEPS
    # No step is there in part: all have the taps of the first.
    assert all(found == taps[0] for found in taps.values())
