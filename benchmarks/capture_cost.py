"""What a capture costs: the same generation with and without one, in turn, on a real model.

    python benchmarks/capture_cost.py --tokens 20 --repeats 3

prints the table of docs/results/capture.md: the median ratio of wall time to the run before it
that was not captured, apart for prefill and for decode steps, and the bytes written. Nothing is
judged here: the numbers depend on the machine, and on what else runs on it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from verify.dumps import capture
from verify.dumps.format.schema import Workload
from verify.dumps.hf.generate import Plan, generate
from verify.dumps.hf.load import LoadedModel, load_model
from verify.dumps.hf.prompts import name_sequences

VARIANTS: dict[str, dict[str, Any]] = {
    "default taps, full": {},
    "default taps, full, no trace": {"edges": "identity"},
    "default taps, digest": {"level": "digest"},
    "default taps, full, operations of a layer": {"ops": ["model.layers.3.*"]},
    "logits only": {"taps": ["logits"]},
    "logits only, no trace": {"taps": ["logits"], "edges": "identity"},
}


@dataclass
class Timed:
    """Seconds of each step of a run."""

    sequence_names: list[str]
    seconds: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, *_: object, **__: object) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - began)

    def record(self, *_: object, **__: object) -> None:
        pass


def timed_plain(loaded: LoadedModel, plan: Plan) -> list[float]:
    """Seconds of each step without a capture."""
    run = Timed([sequence.id for sequence in plan.sequences])
    generate(loaded.model, plan, run)  # type: ignore[arg-type]
    return run.seconds


def timed_capture(
    loaded: LoadedModel, plan: Plan, options: dict[str, Any]
) -> tuple[list[float], int]:
    """Seconds of each step under a capture, its commit included, and bytes on disk."""
    folder = Path(tempfile.mkdtemp(prefix="capture-cost-"))
    seconds: list[float] = []
    try:
        workload = Workload(sequences=plan.sequences)
        with capture(loaded.model, folder / "run", workload=workload, **options) as run:
            steps = run.step

            @contextlib.contextmanager
            def step(*args: Any, **kwargs: Any) -> Iterator[None]:
                began = time.perf_counter()
                with steps(*args, **kwargs):
                    yield
                seconds.append(time.perf_counter() - began)

            run.step = step  # type: ignore[method-assign]
            generate(loaded.model, plan, run)
        return seconds, run.writer.bytes_written
    finally:
        shutil.rmtree(folder)


def measure(loaded: LoadedModel, plan: Plan, options: dict[str, Any], repeats: int) -> str:
    """One line of the table."""
    prefill, decode, written = [], [], 0
    for _ in range(repeats):
        plain = timed_plain(loaded, plan)
        captured, written = timed_capture(loaded, plan, options)
        prefill.append(captured[0] / plain[0])
        decode.append(statistics.median(captured[1:]) / statistics.median(plain[1:]))
    ratios = [f"x{statistics.median(values):.2f}" for values in (prefill, decode)]
    return f"| {' | '.join(ratios)} | {written / 1e6:.1f} MB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[46, 512])
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    loaded = load_model(options.model, dtype=options.dtype)
    generator = torch.Generator().manual_seed(0)
    for length in options.prompt_tokens:
        ids = torch.randint(3, loaded.model.config.vocab_size, (length,), generator=generator)
        plan = Plan(name_sequences([ids.tolist()]), tokens=options.tokens, padding=0)
        plain = timed_plain(loaded, plan)
        per_token = 1e3 * statistics.median(plain[1:])
        print(
            f"\n{options.model} {options.dtype}, {length} prompt tokens, {options.tokens} generated, "
            f"{torch.get_num_threads()} threads; without a capture: prefill {plain[0]:.2f} s, "
            f"decode {per_token:.0f} ms a token\n"
        )
        print("| capture | prefill | decode step | dump |\n|---|---|---|---|")
        for name, variant in VARIANTS.items():
            print(f"| {name} {measure(loaded, plan, variant, options.repeats)}", flush=True)


if __name__ == "__main__":
    main()
