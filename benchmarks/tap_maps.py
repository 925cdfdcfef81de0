"""What a proposed tap map costs and finds on a real model: SmolLM2-135M against its fused form.

    python -m benchmarks.tap_maps [--dtype fp32|bf16] [--tokens 24]

captures one prompt of random tokens through both in full, proposes a map, checks it over all rows,
and prints seconds, memory and what stays open. One thread is enough; the dumps take 80 MB.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from examples.fused_llama import OTHER, TAPS, fused_like
from verify.compare.map_check import check_map
from verify.dumps import capture
from verify.dumps.format import open_dump
from verify.dumps.format.schema import Sequence, Workload
from verify.dumps.hf.load import load_model
from verify.taps.propose import propose
from verify.taps.sampling import template_of


def record(model: torch.nn.Module, folder: Path, ids: torch.Tensor, fused: bool) -> None:
    """One prefill of ``ids`` [1, t]."""
    places = torch.arange(ids.shape[1])[None]
    workload = Workload(sequences=[Sequence(id="text", prompt=ids[0].tolist(), generated=[])])
    with (
        torch.no_grad(),
        capture(model, folder, workload=workload, taps=TAPS if fused else None) as run,
        run.step(positions=places, sequences=["text"]),
    ):
        model(ids, places) if fused else model(input_ids=ids, position_ids=places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    model = load_model("smollm2", dtype=options.dtype).model
    config = model.config
    config.head_dim = config.hidden_size // config.num_attention_heads
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, config.vocab_size, (1, options.tokens), generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder) / "transformers", Path(folder) / "fused"
        record(model, a, ids, fused=False)
        record(fused_like(model, OTHER), b, ids, fused=True)
        began = time.perf_counter()
        proposal = propose(open_dump(a), open_dump(b))
        seconds = time.perf_counter() - began
        check = check_map(open_dump(a), open_dump(b), proposal.tap_map)
    taps = sum(line.taps for line in proposal.lines)
    print(f"{len(proposal.lines)} lines for {taps} taps in {seconds:.1f} s")
    print(f"confidence: {dict(Counter(line.confidence for line in proposal.lines))}")
    print(f"over all rows: {dict(Counter(rule.state for rule in check.rules))}")
    print(f"open in A: {sorted({template_of(tap)[0] for tap in proposal.open_a})}")
    print(f"open in B: {sorted({template_of(tap)[0] for tap in proposal.open_b})}")
    print(
        f"peak memory, model included: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB"
    )


if __name__ == "__main__":
    main()
