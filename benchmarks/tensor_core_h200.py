"""The tensor-core model against the hardware of this machine, bit for bit.

    PYTHONPATH=. python3 benchmarks/tensor_core_h200.py --json out.json [--outputs 1000000]

Needs an sm_90 device, torch and cuda-core (NVRTC). Compiles tensor_core_probe.cu, runs every kind
of instruction on random tiles of several regimes and on the discriminating vectors, and prints one
line a comparison: outputs compared, outputs that differ from the model. The JSON file also holds
up to 32 differing outputs of each with their operands. About a minute, most of it the model. The
lines that an H200 gave are in results/tensor_core_h200.txt.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verify.formats import encode, get_format
from verify.reference.tensor_core import Unit, get_unit, matrix_product
from verify.reference.tensor_core.vectors import VECTORS, as_words

SOURCE = Path(__file__).with_name("tensor_core_probe.cu")
Words = Any
Draw = Callable[[np.random.Generator, tuple[int, ...], str], Words]


@dataclass(frozen=True)
class Probe:
    """One kernel of the source and the unit of the model that should equal it."""

    kernel: str
    unit: Unit
    regimes: tuple[str, ...]


def log_uniform(low: int, high: int) -> Draw:
    """Random signs and significands, exponents uniform over low..high."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
        exponents = rng.integers(low, high, shape, endpoint=True)
        values = np.ldexp(rng.uniform(1, 2, shape) * rng.choice([-1.0, 1.0], shape), exponents)
        return encode(values, fmt, saturate=True)

    return draw


def normal(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    return encode(rng.standard_normal(shape), fmt)


def any_bits(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    words = rng.integers(0, 1 << 32, shape, dtype=np.uint64) & ((1 << get_format(fmt).bits) - 1)
    return words.astype(f"uint{get_format(fmt).bits}")


def few_bits_set(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    """Random words without infinities and NaN: their lowest exponent bit is cleared."""
    row = get_format(fmt)
    return any_bits(rng, shape, fmt) & np.array(
        ~(1 << row.mantissa_bits) & ((1 << row.bits) - 1), f"uint{row.bits}"
    )


def choice(*values: float) -> Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
        return encode(rng.choice(np.array(values, float), shape), fmt)

    return draw


def sparse_specials(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    """Ordinary numbers and zeros, 1 % infinities, 0.3 % NaN with random payload and sign."""
    row = get_format(fmt)
    words = np.where(rng.random(shape) < 0.3, encode(np.zeros(shape), fmt), normal(rng, shape, fmt))
    infinite = np.array(row.exponent_mask, words.dtype) | (any_bits(rng, shape, fmt) & row.sign_bit)
    words = np.where(rng.random(shape) < 0.01, infinite, words)
    nan = any_bits(rng, shape, fmt) | row.exponent_mask | 1
    return np.where(rng.random(shape) < 0.003, nan, words).astype(words.dtype)


def zeros(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    return encode(np.where(rng.random(shape) < 0.5, 0.0, -0.0), fmt)


def mostly_zeros(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    return np.where(rng.random(shape) < 0.9, zeros(rng, shape, fmt), normal(rng, shape, fmt))


def subnormal(rng: np.random.Generator, shape: tuple[int, ...], fmt: str) -> Words:
    row = get_format(fmt)
    return any_bits(rng, shape, fmt) & np.array(
        row.sign_bit | ((1 << row.mantissa_bits) - 1), f"uint{row.bits}"
    )


EXTREME = choice(
    *(s * x for s in (1, -1) for x in (3.4028234663852886e38, 1e38, 2.0**-149, 2.0**-126))
)
# Regime: how a and b are drawn, and how c is.
REGIMES: dict[str, tuple[Draw, Draw]] = {
    "ordinary": (normal, normal),
    "all exponents": (log_uniform(-24, 15), log_uniform(-60, 40)),
    "any finite bits": (few_bits_set, few_bits_set),
    "subnormal operands": (subnormal, log_uniform(-60, -20)),
    "subnormal, tiny c": (subnormal, log_uniform(-149, -30)),
    "huge c": (log_uniform(-24, 15), log_uniform(40, 127)),
    "tiny c": (log_uniform(-24, -10), log_uniform(-149, -40)),
    "extreme c": (log_uniform(-24, 15), EXTREME),
    "specials": (sparse_specials, sparse_specials),
    "any bits, mostly zeros": (mostly_zeros, any_bits),
    "signed zeros": (zeros, zeros),
    "small integers": (choice(-1, 0, 1, 2), choice(-2, -1, 0, 1)),
    "half c": (log_uniform(-12, 3), log_uniform(-24, 15)),
    "half overflow": (log_uniform(4, 9), log_uniform(10, 15)),
    "half underflow": (log_uniform(-16, -9), choice(0.0, -0.0, 2.0**-24, -(2.0**-24))),
    "bf16 wide": (log_uniform(-60, 60), log_uniform(-126, 126)),
    "bf16 products near 2^-149": (log_uniform(-80, -62), log_uniform(-149, -120)),
    "bf16 tiny, c zero": (log_uniform(-80, -66), zeros),
    "bf16 underflow": (log_uniform(-86, -72), choice(0.0, -0.0, 2.0**-149, -(2.0**-149))),
    "bf16 overflow": (log_uniform(58, 66), log_uniform(100, 127)),
    "bf16 subnormal": (subnormal, log_uniform(-149, -120)),
    "bf16 subnormal times large": (log_uniform(-133, 127), log_uniform(-149, 60)),
}
FLOAT16 = (*list(REGIMES)[:12],)
HALF_ONLY = tuple(name for name in REGIMES if "half" in name)
HALF = ("ordinary", "subnormal operands", "specials", "signed zeros", "small integers", *HALF_ONLY)
BF16 = (
    "ordinary",
    "specials",
    "signed zeros",
    "small integers",
    *(name for name in REGIMES if "bf16" in name),
)

PROBES = (
    Probe("wmma_m16n16k16", get_unit("sm_90", "m16n16k16"), FLOAT16),
    Probe("mma_m16n8k16", get_unit("sm_90", "m16n8k16"), FLOAT16),
    Probe("mma_m16n8k8", get_unit("sm_90", "m16n8k8"), FLOAT16),
    Probe("mma_m8n8k4", get_unit("sm_90", "m8n8k4"), FLOAT16),
    Probe("mma_m16n8k16_half", get_unit("sm_90", "m16n8k16", output="float16"), HALF),
    Probe("mma_m16n8k16_bf16", get_unit("sm_90", "m16n8k16", operands="bfloat16"), BF16),
)


class Device:
    """Compiles the source once and runs its kernels on numpy words."""

    def __init__(self) -> None:
        import torch
        from cuda.core import Device as CudaDevice
        from cuda.core import Program, ProgramOptions

        self.torch = torch
        self.device = CudaDevice(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        options = ProgramOptions(arch="sm_90", std="c++17")
        self.module = Program(SOURCE.read_text(), "c++", options).compile("cubin")

    def run(self, kernel: str, a: Words, b: Words, c: Words, steps: int) -> Words:
        """d of tiles: a ``[t, 16, k]``, b ``[t, k, 16]``, c ``[t, 16, 16]``."""
        from cuda.core import LaunchConfig, launch

        arrays = (a, np.ascontiguousarray(b.transpose(0, 2, 1)), c, np.zeros_like(c))
        tensors = [self.torch.from_numpy(x.view(f"int{8 * x.itemsize}")).cuda() for x in arrays]
        self.torch.cuda.synchronize()
        pointers = [tensor.data_ptr() for tensor in tensors]
        config = LaunchConfig(grid=len(a), block=32)
        launch(self.stream, config, self.module.get_kernel(kernel), *pointers, np.int32(steps))
        self.stream.sync()
        return tensors[3].cpu().numpy().view(c.dtype)


def compare(
    device: Device, probe: Probe, regime: str, a: Words, b: Words, c: Words
) -> dict[str, Any]:
    steps = a.shape[-1] // 16
    seen = device.run(probe.kernel, a, b, c, steps)
    model = matrix_product(a, b, c, probe.unit)
    differ = np.argwhere(seen != model)
    result = {
        "kernel": probe.kernel,
        "regime": regime,
        "k": a.shape[-1],
        "outputs": int(seen.size),
        "distinct": len(np.unique(seen)),
        "not_finite": int(np.count_nonzero(~finite(seen, probe.unit.output))),
        "differ": len(differ),
        "examples": [
            {
                "a": a[t, m].tolist(),
                "b": b[t, :, n].tolist(),
                "c": int(c[t, m, n]),
                "seen": int(seen[t, m, n]),
                "model": int(model[t, m, n]),
            }
            for t, m, n in differ[:32]
        ],
    }
    print(
        f"{probe.kernel:<18} {regime:<27} {result['k']:>3} {seen.size:>8} {len(differ):>7}",
        flush=True,
    )
    return result


def finite(words: Words, fmt: str) -> Any:
    mask = get_format(fmt).exponent_mask
    return words & mask != mask


def draw_tiles(
    regime: str, unit: Unit, tiles: int, k: int, seed: int
) -> tuple[Words, Words, Words]:
    rng = np.random.default_rng(seed)
    operand, accumulator = REGIMES[regime]
    a = operand(rng, (tiles, 16, k), unit.operands)
    b = operand(rng, (tiles, k, 16), unit.operands)
    return a, b, accumulator(rng, (tiles, 16, 16), unit.output)


def run_regimes(device: Device, outputs: int) -> list[dict[str, Any]]:
    results = []
    for probe in PROBES:
        for seed, regime in enumerate(probe.regimes):
            tiles = draw_tiles(regime, probe.unit, -(-outputs // 256), 16, seed)
            results.append(compare(device, probe, regime, *tiles))
        long = draw_tiles("ordinary", probe.unit, -(-outputs // 1024), 128, 99)
        results.append(compare(device, probe, "ordinary, chained", *long))
    return results


def run_vectors(device: Device) -> list[dict[str, Any]]:
    """Each vector in row 0 and column 0 of a tile of its own."""
    a_rows, b_rows, c_rows = as_words()
    a = np.zeros((len(VECTORS), 16, 16), np.uint16)
    b = np.zeros_like(a)
    c = np.zeros((len(VECTORS), 16, 16), np.uint32)
    a[:, 0], b[:, :, 0], c[:, 0, 0] = a_rows, b_rows, c_rows
    float16 = [p for p in PROBES if (p.unit.operands, p.unit.output) == ("float16", "float32")]
    return [compare(device, probe, "vectors", a, b, c) for probe in float16]


def run_rivals(device: Device, outputs: int) -> list[dict[str, Any]]:
    """Data of a regime against models that are wrong: these comparisons must differ."""
    rivals = [
        ("wmma_m16n16k16", "ordinary", Unit(16, 24)),
        ("wmma_m16n16k16", "ordinary", Unit(16, 26)),
    ]
    rivals += [
        ("wmma_m16n16k16", "ordinary", Unit(8, 25)),
        ("mma_m16n8k8", "ordinary", Unit(16, 25)),
    ]
    rivals += [
        ("mma_m16n8k16_bf16", "bf16 tiny, c zero", Unit(16, 25, "bfloat16", floor_exponent=floor))
        for floor in (-132, -134)
    ]
    results = []
    for kernel, regime, unit in rivals:
        tiles = draw_tiles(regime, unit, -(-outputs // 2560), 16, 7)
        name = f"RIVAL L={unit.products} F={unit.fraction_bits} E>={unit.floor_exponent}"
        results.append(compare(device, Probe(kernel, unit, ()), name, *tiles))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--outputs", type=int, default=1_000_000, help="outputs of each regime")
    options = parser.parse_args()
    began = time.perf_counter()
    device = Device()
    print(
        f"{device.device.name}\n{'kernel':<18} {'regime':<27} {'k':>3} {'outputs':>8} {'differ':>7}"
    )
    results = run_vectors(device)
    results += run_regimes(device, options.outputs)
    rivals = run_rivals(device, options.outputs)
    seconds = time.perf_counter() - began
    report = {
        "device": device.device.name,
        "seconds": seconds,
        "results": results,
        "rivals": rivals,
    }
    options.json.write_text(json.dumps(report))
    wrong = sum(result["differ"] > 0 for result in results)
    blind = sum(result["differ"] == 0 for result in rivals)
    print(f"{len(results)} comparisons, {wrong} with differences; {seconds:.0f} s")
    return 1 if wrong or blind else 0


if __name__ == "__main__":
    sys.exit(main())
