"""Bytes on the disk of a lean capture, per token and tap, prefill and decode steps apart.

    python benchmarks/digest_size.py --prompt-tokens 512 --tokens 65

captures a real model at every level of ``edges="none"`` and prints the table of
docs/results/digest_scale.md. Decode steps are those of a run that goes on, minus those of one that
ends after its prefill. The last column: the same if each step were a part of its own, as in a model
whose steps take longer than two seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from verify.dumps import capture
from verify.dumps.capture import lean
from verify.dumps.format import open_dump
from verify.dumps.format.schema import Workload
from verify.dumps.hf.generate import Plan, generate
from verify.dumps.hf.load import LoadedModel, load_model
from verify.dumps.hf.prompts import name_sequences

FULL_ROW = 2 * 5120
"""Bytes of a bfloat16 row of a model with hidden size 5120."""


def written(loaded: LoadedModel, plan: Plan, level: str) -> tuple[int, int]:
    """Bytes of the dump, and taps of a step beside token ids."""
    folder = Path(tempfile.mkdtemp(prefix="digest-size-"))
    options: dict[str, Any] = {"taps": ["*.out"], "edges": "none", "level": level}
    try:
        workload = Workload(sequences=plan.sequences)
        with capture(loaded.model, folder / "run", workload=workload, **options) as run:
            generate(loaded.model, plan, run)
        dump = open_dump(folder / "run")
        taps = {record.tap for record in dump.records() if not record.tap.startswith("tokens.")}
        return dump.total_bytes, len(taps)
    finally:
        shutil.rmtree(folder)


def line(loaded: LoadedModel, ids: list[list[int]], tokens: int, level: str) -> str:
    """One line of the table."""
    short, long = (Plan(name_sequences(ids), tokens=n, padding=0) for n in (1, tokens))
    lean.FLUSH_SECONDS = 2.0  # type: ignore[misc]
    prefill, taps = written(loaded, short, level)
    decode = written(loaded, long, level)[0] - prefill
    lean.FLUSH_SECONDS = -1.0  # type: ignore[misc]
    apart = written(loaded, long, level)[0] - written(loaded, short, level)[0]
    prompt, steps = len(ids[0]), tokens - 1
    found = [prefill / prompt / taps, decode / steps / taps, apart / steps / taps]
    cells = " | ".join(f"{size:.1f} (1/{FULL_ROW / size:.0f})" for size in found)
    return f"| `{level}` | {taps} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=65)
    options = parser.parse_args()
    loaded = load_model(options.model, dtype="fp32")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(100, 20000, (1, options.prompt_tokens), generator=generator).tolist()
    print("| level | taps | prefill | decode | decode, a part a step |\n|---|---|---|---|---|")
    for level in lean.LEVELS:
        print(line(loaded, ids, options.tokens, level), flush=True)


if __name__ == "__main__":
    main()
