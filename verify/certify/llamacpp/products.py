"""Products of llama.cpp against the arithmetic that its weight formats ask for: 8-bit activations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.certify.inputs import only_input, places_in, read_values
from verify.certify.llamacpp.judged import Judged
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.llamacpp.blocks import product, read_weight
from verify.dumps.llamacpp.gguf_file import GgufFile
from verify.reference.certificates.result import Outcome
from verify.reference.layers.arithmetic import FP32_UNIT

_LEAST = float(np.finfo(np.float32).smallest_subnormal)
_CONVENTIONS = {
    "Q8_0": "activations in blocks of 32 8-bit integers",
    "Q8_1": "activations in blocks of 32 8-bit integers",
    "Q8_K": "activations in blocks of 256 8-bit integers",
    "F16": "activations rounded to float16",
    "BF16": "activations rounded to bfloat16",
}


def judge_product(
    dump: Dump, record: Record, rows: NDArray[np.int64], file: GgufFile, weight: str
) -> Judged:
    """A product with a weight of the GGUF file.

    The products of a block are summed as integers, exactly; a row then adds up one float32 number a
    block. So in whatever order the error is within ``Weight.roundings`` units of rounding of the sum of
    magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 4.2), to first order.

    Raises:
        ArgumentError: not one recorded input that has its rows.
        ModelError: the GGUF file lacks the weight, or has it in a format without a model.
    """
    source = only_input(dump, record)
    at = places_in(dump, record, source)[rows]
    x = read_values(dump, source)[at].astype(np.float32)
    held = read_weight(file.path, weight)
    output = read_values(dump, record)[rows]
    used = _used(output, product(x, held), held.roundings)
    if used.max(initial=0.0) > 1.0 and held.activations in ("Q8_0", "Q8_1"):
        # Instruction sets differ in how a value half-way between two integers falls.
        other = _used(output, product(x, held, divided=True), held.roundings)
        used = np.minimum(used, other)
    worst = float(used.max(initial=0.0))
    reason = f"{held.kind} weights in {weight} use {worst:.3g} of their bound"
    convention = _CONVENTIONS.get(held.activations, "")
    if convention:
        convention = f"{held.kind} weights times {convention}"
    outcome = Outcome.EXPLAINED if worst <= 1.0 else Outcome.DEFECT
    return Judged(outcome, worst, reason, convention)


def _used(
    output: NDArray[np.float64],
    expected: tuple[NDArray[np.float64], NDArray[np.float64]],
    roundings: int,
) -> NDArray[np.float64]:
    """Share of the bound, the worst of each row."""
    exact, size = expected
    limit = roundings * FP32_UNIT * size + _LEAST
    with np.errstate(invalid="ignore"):
        share = np.nan_to_num(np.abs(output - exact) / limit, nan=np.inf)
    worst: NDArray[np.float64] = share.max(axis=1)
    return worst
