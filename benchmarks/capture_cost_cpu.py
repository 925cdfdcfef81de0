"""What digests of all module outputs cost on a CPU, against the same generation without a capture.

    python benchmarks/capture_cost_cpu.py --prompt-tokens 46 1446 --tokens 24 --repeats 5

Plain and captured runs take turns (plain, captured, captured, plain), and the ratio is that of their
sums, so that a drift of the machine cancels; the median over the repeats is printed with the smallest
and the largest. Decode ratios are those of the whole decode, commits to the disk included. The last
column: bytes on disk per token and tap.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import capture_cost
import torch
from capture_cost import timed_capture, timed_plain

from verify.dumps.hf.generate import Plan
from verify.dumps.hf.load import LoadedModel, load_model
from verify.dumps.hf.prompts import name_sequences

OUTPUTS = ["*.out"]
VARIANTS: dict[str, dict[str, Any]] = {
    "digest alone": {"taps": OUTPUTS, "level": "hash", "edges": "none"},
    "with statistics": {"taps": OUTPUTS, "level": "stats", "edges": "none"},
    "with sketch and statistics": {"taps": OUTPUTS, "level": "digest", "edges": "none"},
}
FOLLOWED: dict[str, dict[str, Any]] = {
    "the same, every input followed": {"taps": OUTPUTS, "level": "digest", "edges": "trace"},
}


def measure(loaded: LoadedModel, plan: Plan, options: dict[str, Any], repeats: int) -> str:
    """One line of the table."""
    prefill, decode, written = [], [], 0
    for _ in range(repeats):
        first = timed_plain(loaded, plan)
        one, written = timed_capture(loaded, plan, options)
        two, _ = timed_capture(loaded, plan, options)
        last = timed_plain(loaded, plan)
        prefill.append((one[0] + two[0]) / (first[0] + last[0]))
        decode.append((sum(one[1:]) + sum(two[1:])) / (sum(first[1:]) + sum(last[1:])))
    taps = sum(1 for path, _ in loaded.model.named_modules() if path)
    tokens = len(plan.sequences[0].prompt) + plan.tokens - 1
    spans = [
        f"x{statistics.median(values):.3f} ({min(values):.2f} .. {max(values):.2f})"
        for values in (prefill, decode)
    ]
    return f"| {' | '.join(spans)} | {written / taps / tokens:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[46, 1446])
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: processor time of all threads, which other jobs on the machine disturb less",
    )
    parser.add_argument("--followed", action="store_true", help="the full capture as well")
    options = parser.parse_args()
    if options.clock == "cpu":
        capture_cost.time.perf_counter = time.process_time  # type: ignore[assignment]
    if options.threads:
        torch.set_num_threads(options.threads)
    loaded = load_model(options.model, dtype=options.dtype)
    generator = torch.Generator().manual_seed(0)
    for length in options.prompt_tokens:
        ids = torch.randint(3, loaded.model.config.vocab_size, (length,), generator=generator)
        plan = Plan(name_sequences([ids.tolist()]), tokens=options.tokens, padding=0)
        plain = timed_plain(loaded, plan)
        print(
            f"\n{options.model} {options.dtype}, {length} prompt tokens, {options.tokens} generated,"
            f" {torch.get_num_threads()} threads, {options.clock} time; plain: prefill {plain[0]:.2f} s, "
            f"decode {1e3 * statistics.median(plain[1:]):.0f} ms a token\n"
        )
        print("| capture | prefill | decode | bytes a token and tap |\n|---|---|---|---|")
        variants = {**VARIANTS, **(FOLLOWED if options.followed else {})}
        for name, variant in variants.items():
            print(f"| {name} {measure(loaded, plan, variant, options.repeats)}", flush=True)


if __name__ == "__main__":
    main()
