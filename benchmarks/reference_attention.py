"""FP64 streaming attention against 160-bit mpmath at full size.

    nice -n 10 .venv/bin/python benchmarks/reference_attention.py [--keys 262144] [--dim 256]

Prints a markdown table: relative L2 error of each row (promised: at most 2e-14), the share of the
printed bound that the worst element uses (must be at most 1), and times. About 30 s a row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import mpmath
import torch

from verify.reference.attention import AttentionInputs, Row, attend
from verify.reference.attention.exact import attend_exact

PROMISE = 2e-14
SCORES = {"flat": 0.0, "ordinary": 2.0, "with a sink": 2.0}
"""Standard deviation of the scores, natural log."""


def problems(keys: int, dim: int, rows: int) -> Iterator[tuple[str, AttentionInputs]]:
    for seed, (name, size) in enumerate(SCORES.items()):
        generator = torch.Generator().manual_seed(seed)
        draw = [torch.randn(1, n, 1, dim, generator=generator) for n in (rows, keys, keys)]
        sinks = torch.tensor([9.0]) if "sink" in name else None
        q, k, v = draw[0] * size, draw[1], draw[2]
        yield name, AttentionInputs(q.half(), k.half(), v.half(), sinks=sinks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=262144)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--rows", type=int, default=2, help="rows of each kind of scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| scores | row | keys | n_eff | relative L2 | bound used | FP64 s | mpmath s |")
    print("|-|-|-|-|-|-|-|-|")
    holds = True
    for name, inputs in problems(options.keys, options.dim, options.rows):
        for token in range(options.rows):
            row = Row(0, token, 0)
            began = time.perf_counter()
            found = attend(inputs, [row])
            between = time.perf_counter()
            exact = attend_exact(inputs, [row], precision=160)
            ended = time.perf_counter()
            pairs = zip(found.output[0].tolist(), exact.output[0], strict=True)
            errors = [mpmath.mpf(x) - y for x, y in pairs]
            relative = float(mpmath.norm(errors) / mpmath.norm(exact.output[0]))
            bounds = found.bound[0].tolist()
            used = max(float(abs(e)) / b for e, b in zip(errors, bounds, strict=True))
            holds &= relative <= PROMISE and used <= 1.0
            print(
                f"| {name} | {token} | {inputs.visible(row)[1]} "
                f"| {float(found.effective_keys[0]):.0f} | {relative:.1e} | {used:.1e} "
                f"| {between - began:.1f} | {ended - between:.1f} |",
                flush=True,
            )
    print("holds" if holds else "BROKEN")
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
