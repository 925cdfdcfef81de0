"""Products of llama.cpp against the arithmetic that its weight formats ask for: 8-bit activations."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verify.certify.inputs import check_rows, only_input, read_values
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.llamacpp.blocks import BLOCK, Weight, product, read_weight
from verify.errors import ArgumentError
from verify.reference.certificates.result import Outcome
from verify.taps.view import View

_WEIGHTS = {
    "Qcur": "attn_q", "Kcur": "attn_k", "Vcur": "attn_v", "attn_out": "attn_output",
    "ffn_gate": "ffn_gate", "ffn_up": "ffn_up", "ffn_out": "ffn_down",
}  # fmt: skip
_MOVES = frozenset({"RESHAPE", "VIEW", "CONT", "PERMUTE", "TRANSPOSE"})
_UNIT = 2.0**-24


def is_llamacpp(dump: Dump) -> bool:
    return dump.manifest.settings.get("engine") == "llama.cpp"


def certify_product(
    dump: Dump, record: Record, rows: NDArray[np.int64], gguf: Path
) -> tuple[Outcome, float, str]:
    """Outcome, share of the bound, and the convention of a product with quantised weights.

    The products of a block are summed as integers, exactly; a row then adds up one float32 number a
    block, each with at most four roundings of its own (two factors, the minimum, their sum). So in
    whatever order the error is within (blocks + 4) units of rounding of the sum of magnitudes (Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., 4.2), to first order.

    Args:
        rows: of the record, to be judged.

    Raises:
        ArgumentError: the record is no product of llama.cpp with one recorded input.
        ModelError: the GGUF file lacks the weight, or has it in a format without a model.
    """
    stored_dump = dump.stored if isinstance(dump, View) else dump
    node = _node(stored_dump, dump.making(record).sources[0] if isinstance(dump, View) else record)
    source = only_input(stored_dump, node)
    check_rows(stored_dump, node, source)
    x = read_values(stored_dump, source)[rows].astype(np.float32)
    weight = _weight(gguf, _weight_name(node.tap))
    exact, size = product(x, weight)
    output = read_values(stored_dump, node)[rows]
    limit = (x.shape[1] // BLOCK + 4) * _UNIT * size + np.finfo(np.float32).smallest_subnormal
    used = float(np.nan_to_num(np.abs(output - exact) / limit, nan=np.inf).max(initial=0.0))
    outcome = Outcome.EXPLAINED if used <= 1.0 else Outcome.DEFECT
    return outcome, used, f"{weight.kind} weights times activations in blocks of 8-bit integers"


def _node(dump: Dump, record: Record) -> Record:
    """The product itself, behind operations that only move its values."""
    while record.attributes.get("operation") in _MOVES:
        source = only_input(dump, record)
        if not np.array_equal(
            dump.read_words(record).reshape(-1), dump.read_words(source).reshape(-1)
        ):
            raise ArgumentError("values were changed on the way", where=record.tap)
        record = source
    if record.attributes.get("operation") != "MUL_MAT":
        raise ArgumentError(
            "no product", where=record.tap, found=record.attributes.get("operation"),
            allowed="MUL_MAT",
        )  # fmt: skip
    return record


def _weight_name(tap: str) -> str:
    base, _, layer = tap.partition("-")
    if base in _WEIGHTS and layer:
        return f"blk.{layer}.{_WEIGHTS[base]}.weight"
    if tap == "result_output":
        return "output.weight"
    raise ArgumentError("no weight is known for this tap", where=tap)


@lru_cache(maxsize=8)
def _weight(gguf: Path, name: str) -> Weight:
    return read_weight(gguf, name)
