"""Which reference judges a node of llama.cpp: told by its operation and the weights it read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verify.certify.inputs import only_input
from verify.certify.llamacpp.attention import judge_attention
from verify.certify.llamacpp.judged import Judged
from verify.certify.llamacpp.layers import (
    judge_gate,
    judge_lookup,
    judge_norm,
    judge_rope,
    judge_sum,
)
from verify.certify.llamacpp.products import judge_product
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.llamacpp.gguf_file import open_gguf
from verify.errors import ArgumentError
from verify.taps.view import View

_MOVES = frozenset({"RESHAPE", "VIEW", "CONT", "PERMUTE", "TRANSPOSE"})
_ATTENTION = "kqv_out"


def is_llamacpp(dump: Dump) -> bool:
    """Whether the run was recorded by ``verify.dumps.llamacpp``."""
    return dump.manifest.settings.get("engine") == "llama.cpp"


def judge_node(dump: Dump, record: Record, rows: NDArray[np.int64], gguf: Path) -> Judged:
    """A recorded tensor of llama.cpp against FP64 on what it read.

    Args:
        rows: of the record, to be judged.

    Raises:
        ArgumentError: no reference for the operation, or inputs that were not recorded.
        ModelError: the GGUF file lacks what the operation reads.
    """
    if isinstance(dump, View):
        record, dump = dump.making(record).sources[0], dump.stored
    file = open_gguf(gguf)
    base, _, layer = record.tap.partition("-")
    if base == _ATTENTION:
        return judge_attention(dump, record, rows, file, layer)
    node = _unmoved(dump, record)
    operation, weights = node.attributes.get("operation"), node.attributes.get("weights", [])
    if operation == "ROPE":
        return judge_rope(dump, node, rows, file)
    if operation == "SWIGLU":
        return judge_gate(dump, node, rows)
    if operation == "ADD" and not weights:
        return judge_sum(dump, node, rows)
    if len(weights) == 1:
        if operation == "MUL_MAT":
            return judge_product(dump, node, rows, file, weights[0])
        if operation == "MUL":
            return judge_norm(dump, node, rows, file, weights[0])
        if operation == "GET_ROWS":
            return judge_lookup(dump, node, rows, file, weights[0])
    raise ArgumentError(
        "no reference for this operation", where=node.tap, found=operation,
        allowed="ADD, GET_ROWS, MUL, MUL_MAT, ROPE, SWIGLU",
    )  # fmt: skip


def _unmoved(dump: Dump, record: Record) -> Record:
    """The node that computed the values, behind operations that only move them."""
    while record.attributes.get("operation") in _MOVES:
        source = only_input(dump, record)
        if not np.array_equal(
            dump.read_words(record).reshape(-1), dump.read_words(source).reshape(-1)
        ):
            raise ArgumentError("values were changed on the way", where=record.tap)
        record = source
    return record
