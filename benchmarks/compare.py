"""Memory and throughput of `verify compare` on two large dumps, against reading the files alone.

    python benchmarks/compare.py --gigabytes 2 --folder /somewhere/with/space

writes the dumps there (and reuses them), runs the command in processes of its own, and prints the
table of docs/results/compare.md. Nothing is judged here: the numbers depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.schema import Manifest, Model, Record, Rows, Sequence, Workload
from verify.dumps.summaries import row_statistics

POSITIONS = 1024
TAPS = 16
READ_BLOCK = 8 << 20
DTYPES = {"float32": np.uint32, "bfloat16": np.uint16}


@dataclass(frozen=True)
class Case:
    """A pair of dumps: the dtype, and which share of B's rows differs from A's."""

    name: str
    dtype: str
    changed: float
    width: int = 2048
    """Elements in a row."""


CASES = (
    Case("float32, equal", "float32", 0.0),
    Case("float32, 1 % of the rows differ", "float32", 0.01),
    Case("float32, every row differs", "float32", 1.0),
    Case("bfloat16, every row differs", "bfloat16", 1.0),
    Case("bfloat16, rows of 640, equal", "bfloat16", 0.0, 640),
)


def build(path: Path, case: Case, changed: float, size: int) -> None:
    """A dump of about ``size`` bytes; a share ``changed`` of the rows has every third element moved
    by one ULP."""
    if path.exists():
        return
    dtype, width = case.dtype, case.width
    draw = np.random.default_rng(0)
    values = draw.standard_normal((POSITIONS, width)).astype(np.float32)
    base = values.view(np.uint32)
    words = base if dtype == "float32" else (base >> np.uint32(16)).astype(np.uint16)
    words = words.astype(DTYPES[dtype])
    words[: round(changed * POSITIONS), ::3] += words.dtype.type(1)
    rows = Rows(
        sequence=np.full(POSITIONS, "s#0", object),
        position=np.arange(POSITIONS),
        visit=np.zeros(POSITIONS, np.int64),
        digest=row_digests(words, dtype),
        statistics=row_statistics(words, dtype),
    )
    sequence = Sequence(id="s#0", prompt=[1] * POSITIONS)
    manifest = Manifest(
        run_id=path.name, workload=Workload(sequences=[sequence]), model=Model(name="synthetic")
    )
    records = max(1, size // words.nbytes)
    with DumpWriter(path, manifest) as writer:
        for seq in range(records):
            tap = f"layers.{seq // TAPS}.tap{seq % TAPS}.out"
            record = Record(
                seq=seq,
                step=0,
                tap=tap,
                axes="b t d",
                dtype=dtype,
                shape=[1, POSITIONS, width],
                strides=[POSITIONS * width, width, 1],
                row_length=width,
                n_rows=POSITIONS,
            )
            writer.add(record, rows, words, owned=True)


def tensor_files(*paths: Path) -> Iterator[Path]:
    """The files that hold the words of the dumps."""
    for path in paths:
        yield from sorted(path.rglob("tensors.safetensors"))


def forget(*paths: Path) -> None:
    """Ask the kernel to drop the files from its cache."""
    for file in tensor_files(*paths):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_alone(*paths: Path) -> float:
    """Seconds that reading the words takes, in blocks of 8 MiB, with nothing done to them."""
    buffer = bytearray(READ_BLOCK)
    began = time.perf_counter()
    for file in tensor_files(*paths):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass
    return time.perf_counter() - began


@dataclass(frozen=True)
class Run:
    """One `verify compare` in a process of its own."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    code: int


def run_compare(a: Path, b: Path) -> Run:
    """Compare two dumps."""
    script = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run([sys.executable, '-c', 'from verify.cli import main; main()',"
        " 'compare', *sys.argv[1:], '--json'], stdout=subprocess.DEVNULL).returncode\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(code, used.ru_maxrss, used.ru_utime + used.ru_stime)\n"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", script, str(a), str(b)], check=True, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    code, peak, cpu = done.stdout.split()
    return Run(seconds, float(cpu), int(peak) * 1024, int(code))


def measure(case: Case, folder: Path, size: int) -> str:
    """One line of the table."""
    named = f"{case.dtype}-{case.width}"
    a, other = folder / f"{named}-base", folder / f"{named}-{case.changed:g}"
    build(a, case, 0.0, size)
    build(other, case, case.changed, size)
    total = sum(file.stat().st_size for file in tensor_files(a, other))
    forget(a, other)
    cold_read = read_alone(a, other)
    forget(a, other)
    cold = run_compare(a, other)
    if cold.code != (case.changed > 0):
        raise SystemExit(f"verify compare ended with exit code {cold.code} on: {case.name}")
    warm_read = min(read_alone(a, other) for _ in range(2))
    warm = min((run_compare(a, other) for _ in range(2)), key=lambda run: run.seconds)
    shutil.rmtree(other)
    speed = total / 1e6
    peak = max(cold.peak_bytes, warm.peak_bytes) / 1e6
    return (
        f"| {case.name} | {total / 2e9:.2f} | {peak:.0f} "
        f"| {speed / cold_read:.0f} | {speed / cold.seconds:.0f} | {cold.seconds / cold_read:.1f} "
        f"| {speed / warm_read:.0f} | {speed / warm.seconds:.0f} | {warm.seconds / warm_read:.1f} "
        f"| {warm.cpu_seconds:.1f} |"
    )


HEAD = """\
| pair | GB each | peak MB | cold: read MB/s | compare MB/s | time ratio \
| warm: read MB/s | compare MB/s | time ratio | CPU s |
|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of each dump")
    parser.add_argument("--folder", type=Path, required=True, help="where the dumps go")
    parser.add_argument("--case", default="", help="only the cases whose name holds this text")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    for case in CASES:
        if arguments.case in case.name:
            size = round(arguments.gigabytes * 1e9)
            print(measure(case, arguments.folder, size), flush=True)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n(this script: {own:.0f} MB)", file=sys.stderr)


if __name__ == "__main__":
    main()
