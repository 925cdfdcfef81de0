"""How often layer certificates raise a false alarm, and which planted faults they find and name.

    nice -n 10 .venv/bin/python -m benchmarks.detection_layers

Right outputs come from torch's CPU kernels, so their rounding depends on the processor; faults and
data are those of tests/support/layer_cases.py and layer_faults.py with fixed seeds. Writes
docs/results/detection_layers.md. Three minutes of processor time.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from tests.support.layer_cases import (
    DTYPES,
    KINDS,
    Case,
    Draw,
    convention_cases,
    correct_cases,
    rms,
)
from tests.support.layer_faults import add_in_steps, fault_cases
from verify.reference.certificates.certify import certify
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.norm import RmsNorm
from verify.reference.certificates.result import Certificate, Outcome

TARGET = Path(__file__).parent.parent / "docs" / "results" / "detection_layers.md"
# rows, width: single rows, odd and even widths, a real hidden size, a long row.
SIZES = [(1, 1), (3, 2), (16, 7), (1, 64), (40, 300), (16, 576), (3, 1536), (8, 4096)]
FAULT_ROWS, FAULT_WIDTH = 32, 256


def judge(case: Case) -> Certificate:
    return certify(case.output, case.inputs, case.op)


def false_alarms(seeds: int) -> Iterator[tuple[str, str, Certificate]]:
    """(dtype, layer, certificate) of right outputs, over every kind of data and size."""
    for seed in range(seeds):
        for kind in KINDS:
            for dtype, (rows, width) in ((d, s) for d in DTYPES for s in SIZES):
                for case in correct_cases(Draw(DTYPES[dtype], rows, width, kind, seed)):
                    yield dtype, case.name, judge(case)


def detections(
    make: Callable[[Draw], Iterable[Case]], wanted: Outcome, seeds: int
) -> dict[str, dict[str, list[tuple[bool, bool]]]]:
    """name -> dtype -> (found, named) of each seed."""
    table: dict[str, dict[str, list[tuple[bool, bool]]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(seeds):
        for dtype, torch_dtype in DTYPES.items():
            for case in make(Draw(torch_dtype, FAULT_ROWS, FAULT_WIDTH, seed=seed)):
                certificate = judge(case)
                said = "\n".join([*certificate.reasons, *certificate.conventions])
                named = bool(case.expect) and case.expect in said
                table[case.name][dtype].append((certificate.outcome is wanted, named))
    return table


def sensitivity(seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """(what, dtype, smallest that is called a DEFECT) on one tensor of 32 x 256."""
    for dtype, torch_dtype in DTYPES.items():
        draw = Draw(torch_dtype, FAULT_ROWS, FAULT_WIDTH, seed=seed)
        x, weight, matrix = draw.activations(), draw.gains(), draw.normal(64, FAULT_WIDTH)
        both = {"x": x, "weight": weight}
        product = {"x": x, "weight": matrix}

        def gain(power: int, x: torch.Tensor = x, weight: torch.Tensor = weight) -> torch.Tensor:
            return rms(x, weight.float() * (1.0 + 2.0**-power))

        def scaled(power: int, x: torch.Tensor = x, m: torch.Tensor = matrix) -> torch.Tensor:
            return (x.double() @ m.double().T * (1.0 + 2.0**-power)).to(x.dtype)

        found = smallest(gain, lambda y, i=both: certify(y, i, RmsNorm(1e-6)))
        yield "RMSNorm times 1 + 2^-k", dtype, found
        found = smallest(scaled, lambda y, i=product: certify(y, i, Linear()))
        yield "product times 1 + 2^-k", dtype, found
        for name in ("bfloat16", "float16"):
            steps = accumulated(x, matrix, DTYPES[name])
            yield f"accumulator in {name}, rounded every n products", dtype, steps


def smallest(make: Callable[[int], torch.Tensor], call: Callable[..., Certificate]) -> str:
    found = [power for power in range(4, 24) if call(make(power)).outcome is Outcome.DEFECT]
    return f"2^-{max(found)}" if found else "none"


def accumulated(x: torch.Tensor, matrix: torch.Tensor, dtype: torch.dtype) -> str:
    found = [
        step
        for step in (1, 4, 16, 64, 128)
        if certify(
            add_in_steps(x, matrix, dtype, step), {"x": x, "weight": matrix}, Linear()
        ).outcome
        is Outcome.DEFECT
    ]
    return f"found up to n = {max(found)}" if found else "not found"


def write_report(seeds: int, fault_seeds: int) -> str:
    start = time.process_time()
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    closest: Counter[str] = Counter()
    for _, layer, certificate in false_alarms(seeds):
        outcomes[layer][certificate.outcome.value] += 1
        closest[layer] = max(closest[layer], certificate.numbers["near_used"])
    parts = {
        "total": sum(counts.total() for counts in outcomes.values()),
        "kinds": ", ".join(KINDS),
        "sizes": ", ".join(f"{rows} x {width}" for rows, width in SIZES),
        "size": f"{FAULT_ROWS} x {FAULT_WIDTH}",
        "seeds": seeds,
        "fault_seeds": fault_seeds,
        "correct": "\n".join(outcome_table(outcomes, closest)),
        "conventions": "\n".join(
            detection_table(detections(convention_cases, Outcome.PRECISION, fault_seeds))
        ),
        "faults": "\n".join(detection_table(detections(fault_cases, Outcome.DEFECT, fault_seeds))),
        "limits": "\n".join(limit_table(list(sensitivity()))),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    return REPORT.format(**parts, seconds=time.process_time() - start)


REPORT = """\
# Layer certificates: false alarms and detection

Written by `python -m benchmarks.detection_layers --seeds {seeds} --fault-seeds {fault_seeds}` with
torch {torch} on {machine} in {seconds:.0f} s of processor time.
[numerics.md](../numerics.md) explains outcomes and checks.

## Right outputs of torch on the CPU

{total} outputs in float32, bfloat16 and float16. Data: {kinds}. Sizes: {sizes}. Seeds: {seeds}. The
last column is the largest share of the statistical enclosure (9 deviations) that an element used; it
is 1 where an intermediate rounding fell to the other neighbour, which the enclosure ends on.

{correct}

## Other conventions

Right under a convention that was not declared, {size}: called PRECISION, and with that convention
named, of {fault_seeds} seeds each.

{conventions}

## Planted faults

{size}: called DEFECT, and named, of {fault_seeds} seeds each. A dash: the fault has no name of its
own, and the certificate describes where it lies.

{faults}

## How small a fault is still found

One tensor of {size}. More elements find less: a gain is found from about 7 deviations of the mean.
A smaller gain of a product may be called PRECISION: the drift of a truncating tensor core explains it.

{limits}
"""


def outcome_table(outcomes: dict[str, Counter[str]], closest: Counter[str]) -> list[str]:
    rows = ["| layer | outputs | EXPLAINED | PRECISION | SUSPECT | DEFECT | used |"]
    rows.append("|-|-|-|-|-|-|-|")
    for layer, counts in outcomes.items():
        cells = " | ".join(str(counts[outcome.value]) for outcome in Outcome)
        rows.append(f"| {layer} | {counts.total()} | {cells} | {closest[layer]:.2f} |")
    return rows


def detection_table(table: dict[str, dict[str, list[tuple[bool, bool]]]]) -> list[str]:
    rows = ["| case | " + " | ".join(DTYPES) + " |", "|-" * (len(DTYPES) + 1) + "|"]
    for name, by_dtype in table.items():
        cells = []
        for dtype in DTYPES:
            trials = by_dtype.get(dtype, [])
            found, named = (sum(trial[i] for trial in trials) for i in (0, 1))
            shown = f"{found}/{len(trials)}, {named or '-'}" if trials else "no such case"
            cells.append(shown)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def limit_table(limits: list[tuple[str, str, str]]) -> list[str]:
    rows = ["| fault | " + " | ".join(DTYPES) + " |", "|-" * (len(DTYPES) + 1) + "|"]
    for what in dict.fromkeys(limit[0] for limit in limits):
        cells = [found for name, _, found in limits if name == what]
        rows.append(f"| {what} | " + " | ".join(cells) + " |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the right outputs")
    parser.add_argument("--fault-seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=TARGET)
    options = parser.parse_args()
    report = write_report(options.seeds, options.fault_seeds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
