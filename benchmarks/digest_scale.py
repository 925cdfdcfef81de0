"""Seconds and memory of `verify bisect` and `verify compare` on dumps of millions of digest rows.

    python benchmarks/digest_scale.py --rows 5000000 --folder /somewhere/with/space

writes pairs of dumps there as a capture with ``edges="none", level="hash"`` does, with digests drawn
at random, runs the commands in processes of their own, and prints the table of
docs/results/digest_scale.md. Two shapes: ``decode``, one row a record (a token a step through 60
layers of 14 taps), and ``prefill``, few records of many rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.block import StepTemplate
from verify.dumps.format.schema import Input, Manifest, Model, Record, Rows, Sequence, Workload

LAYERS = 60
PORTS = (
    "input_layernorm.out", "self_attn.q_proj.out", "self_attn.k_proj.out", "self_attn.v_proj.out",
    "self_attn.q_norm.out", "self_attn.k_norm.out", "self_attn.o_proj.out", "self_attn.out",
    "post_attention_layernorm.out", "mlp.gate_proj.out", "mlp.up_proj.out", "mlp.down_proj.out",
    "mlp.out", "out",
)  # fmt: skip
TAPS = [f"model.layers.{layer}.{port}" for layer in range(LAYERS) for port in PORTS]
WIDTH = 5120
STEPS_A_PART = 64
"""Steps that share a part: those of about two seconds."""


@dataclass(frozen=True)
class Shape:
    """How the rows of a dump are spread over records."""

    name: str
    tokens: int
    """Tokens of one step."""


SHAPES = {shape.name: shape for shape in (Shape("decode", 1), Shape("prefill", 6000))}
CHANGES = ("equal", "one row", "second half")


def build(path: Path, shape: Shape, rows: int, change: str) -> None:
    """A dump of about ``rows`` rows; ``change`` says which digests differ from those of "equal"."""
    shutil.rmtree(path, ignore_errors=True)
    steps = max(1, round(rows / (len(TAPS) * shape.tokens)))
    ids = np.random.default_rng(1).integers(0, 1 << 15, steps * shape.tokens + 1)
    sequence = Sequence(id="s#0", prompt=ids[: shape.tokens].tolist())
    manifest = Manifest(
        run_id=path.name,
        workload=Workload(sequences=[sequence]),
        model=Model(name="synthetic"),
        capture={"level": "hash", "edges": "none", "taps": ["*"]},
    )
    template = StepTemplate([_record(tap, shape.tokens) for tap in TAPS])
    generator = np.random.default_rng(0)
    with DumpWriter(path, manifest) as writer:
        seq = 0
        for step in range(steps):
            here = np.arange(step * shape.tokens, (step + 1) * shape.tokens)
            _tokens(writer, seq, step, "tokens.in", here, ids[here])
            digest = generator.integers(0, 1 << 64, template.n_rows, np.uint64)
            if change == "one row" and step == steps // 2:
                digest[len(digest) // 2] ^= np.uint64(1)
            if change == "second half" and 2 * step >= steps - (steps == 1):
                digest[len(digest) // 2 if steps == 1 else 0 :] ^= np.uint64(1)
            names = _names(len(digest), np.tile(here, len(TAPS)))
            writer.add_block(template, seq + 1, step, Rows(*names, digest))
            seq += 1 + len(TAPS)
            _tokens(writer, seq, step, "tokens.out", here[-1:], ids[here[-1:] + 1])
            seq += 1
            if step % STEPS_A_PART == STEPS_A_PART - 1:
                writer.flush()


def _record(tap: str, tokens: int) -> Record:
    return Record(
        seq=0, step=0, tap=tap, axes="b t d", dtype="bfloat16", shape=[1, tokens, WIDTH],
        strides=[tokens * WIDTH, WIDTH, 1], kept="digest", inputs=[Input(kind="unknown")],
        row_length=WIDTH, n_rows=tokens,
    )  # fmt: skip


def _tokens(
    writer: DumpWriter, seq: int, step: int, tap: str, positions: np.ndarray, ids: np.ndarray
) -> None:
    words = ids.astype(np.uint64).reshape(-1, 1)
    record = Record(
        seq=seq, step=step, tap=tap, axes="b t", dtype="int64", shape=[1, len(ids)],
        strides=[len(ids), 1], inputs=[Input(kind="unknown")], row_length=1,
    )  # fmt: skip
    names = _names(len(ids), positions)
    writer.add(record, Rows(*names, row_digests(words, "int64")), words)


def _names(rows: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.full(rows, "s#0", object), positions, np.zeros(rows, np.int64)


@dataclass(frozen=True)
class Run:
    """One command in a process of its own."""

    code: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def run(*command: str) -> Run:
    """``verify`` with these arguments."""
    script = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run([sys.executable, '-c', 'from verify.cli import main; main()',"
        " *sys.argv[1:]], stdout=subprocess.DEVNULL).returncode\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(code, used.ru_maxrss, used.ru_utime + used.ru_stime)\n"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", script, *command], check=True, capture_output=True, text=True
    )
    code, peak, cpu = done.stdout.split()
    return Run(int(code), time.perf_counter() - began, float(cpu), int(peak) * 1024)


def measure(folder: Path, shape: Shape, rows: int, change: str, extra: list[str]) -> list[str]:
    """The lines of the table for one pair of dumps."""
    base, other = folder / f"{shape.name}-{rows}", folder / f"{shape.name}-{rows}-other"
    if not base.exists():
        build(base, shape, rows, "equal")
    build(other, shape, rows, change)
    steps = max(1, round(rows / (len(TAPS) * shape.tokens)))
    records, held = steps * (len(TAPS) + 2), steps * (len(TAPS) * shape.tokens + shape.tokens + 1)
    size = sum(file.stat().st_size for file in base.rglob("*") if file.is_file())
    lines = []
    for command in ("bisect", "compare"):
        found = run(command, str(base), str(other), *extra)
        # One row that nothing after it shows is taken for a fault of the recording: code 3.
        if found.code not in ((0,) if change == "equal" else (1, 3)):
            raise SystemExit(f"verify {command} ended with exit code {found.code}: {change}")
        lines.append(
            f"| {shape.name} | {held:,} | {records:,} | {size / held:.1f} | {change} "
            f"| `{command}` | {found.seconds:.1f} | {found.cpu_seconds:.1f} "
            f"| {found.peak_bytes / 1e6:,.0f} |"
        )
    shutil.rmtree(other)
    return lines


HEAD = """\
| shape | rows each | records each | bytes a row | what differs | command | seconds | CPU s | peak MB |
|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="where the dumps go")
    parser.add_argument("--shape", choices=[*SHAPES], action="append")
    parser.add_argument("--change", choices=CHANGES, action="append")
    parser.add_argument("extra", nargs="*", help="further arguments of the commands, after --")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    for name in arguments.shape or SHAPES:
        for change in arguments.change or CHANGES:
            lines = measure(arguments.folder, SHAPES[name], arguments.rows, change, arguments.extra)
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
