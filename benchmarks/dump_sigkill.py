"""SIGKILL at random moments of a capture: every part that was committed reads, bit for bit.

    python benchmarks/dump_sigkill.py --kills 200 --seed 0

A child process writes a dump, one part a step, and says so on a pipe after each commit. The parent
kills it at a random moment of its life and then demands of what lies on the disk: it opens (or is
not a dump yet, when nothing was committed); at least the announced steps are there and at most one
more; every word and row is the one that the child computed. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np

from verify.dumps.digests import row_digests
from verify.dumps.format import Dump, DumpWriter, open_dump
from verify.dumps.format.schema import Manifest, Model, Record, Rows, Sequence, Workload
from verify.errors import DumpError

STEPS = 12
RECORDS = 20
SHAPE = (16, 256)


def words_of(seq: int) -> np.ndarray:
    """The words of record ``seq``, the same in the child and in the parent: uint32 [rows, length]."""
    return np.random.default_rng(seq).integers(0, 1 << 32, SHAPE, dtype=np.uint32)


def child(path: Path) -> None:
    """Write the dump; one byte on stdout before the first file and after each commit."""
    os.write(1, b"!")
    prompt = Sequence(id="s#0", prompt=[1, 2])
    manifest = Manifest(run_id="r", workload=Workload(sequences=[prompt]), model=Model(name="toy"))
    with DumpWriter(path, manifest) as writer:
        for step in range(STEPS):
            for seq in range(step * RECORDS, (step + 1) * RECORDS):
                _add(writer, seq, step)
            writer.flush()
            os.write(1, b".")


def _add(writer: DumpWriter, seq: int, step: int) -> None:
    words = words_of(seq)
    rows = Rows(
        sequence=np.array(["s#0"] * len(words), object),
        position=np.arange(len(words)) + step * len(words),
        visit=np.zeros(len(words), np.int64),
        digest=row_digests(words, "float32"),
    )
    record = Record(
        seq=seq,
        step=step,
        tap=f"layer.{seq % RECORDS}.out",
        axes="t d",
        dtype="float32",
        shape=list(SHAPE),
        strides=[SHAPE[1], 1],
        row_length=SHAPE[1],
    )
    writer.add(record, rows, words)


def kill_once(path: Path, delay: float) -> tuple[int, bool]:
    """Start a child, kill it ``delay`` seconds after its first byte: commits announced, killed."""
    command = [sys.executable, __file__, "--child", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        announced = len(process.stdout.read())
    return announced, process.returncode == -signal.SIGKILL


def check(path: Path, announced: int) -> str:
    """What is on the disk, in a word; a text that begins with FAULT otherwise."""
    try:
        dump = open_dump(path)
    except DumpError as error:
        if announced or (path / "manifest.json").exists():
            return f"FAULT: {announced} commits were announced: {error}"
        return "no dump yet"
    if not announced <= dump.part_count <= announced + 1:
        return f"FAULT: {announced} commits were announced, {dump.part_count} are there"
    if fault := content_fault(dump):
        return f"FAULT: {fault}"
    if dump.complete:
        return "complete"
    left = any("unfinished part" in note for note in dump.problems)
    return "open, in the middle of a part" if left else "open"


def content_fault(dump: Dump) -> str | None:
    """The first thing that is not what the child computed."""
    records = dump.records()
    if [r.seq for r in records] != list(range(dump.part_count * RECORDS)):
        return "the records are not those of the committed steps"
    for record in records:
        expected = words_of(record.seq)
        if dump.read_words(record).tobytes() != expected.tobytes():
            return f"record {record.seq} has other words"
        if (dump.rows(record).digest != row_digests(expected, "float32")).any():
            return f"record {record.seq} has other rows"
    return None


def lifetime(home: Path) -> float:
    """Seconds from a child's first byte to its end, undisturbed."""
    command = [sys.executable, __file__, "--child", str(home / "whole")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        start = time.perf_counter()
        process.stdout.read()
        process.wait()
    return time.perf_counter() - start


def run(kills: int, seed: int, home: Path) -> int:
    """Kill children until ``kills`` of them died of it; the number of faults."""
    rng = Random(seed)
    whole = lifetime(home)
    print(f"an undisturbed child writes {STEPS} parts in {whole:.2f} s")
    outcomes: Counter[str] = Counter()
    faults = children = killed = commits = 0
    while killed < kills:
        path = home / f"run-{children}"
        announced, was_killed = kill_once(path, rng.random() * whole)
        outcome = check(path, announced)
        outcomes[outcome if not outcome.startswith("FAULT") else "FAULT"] += 1
        if outcome.startswith("FAULT"):
            faults += 1
            print(f"child {children}: {outcome}")
        shutil.rmtree(path, ignore_errors=True)
        children += 1
        killed += was_killed  # one that ended before its time to die is checked, not counted
        commits += announced
    for outcome, times in sorted(outcomes.items()):
        print(f"{outcome:<32} {times:>5}")
    print(f"{killed} kills of {children} children, {commits} commits checked, {faults} faults")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    with tempfile.TemporaryDirectory() as home:
        return 1 if run(options.kills, options.seed, Path(home)) else 0


if __name__ == "__main__":
    sys.exit(main())
