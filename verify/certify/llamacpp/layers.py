"""Embedding, norms, rotary embedding, activation and additions of llama.cpp, all of them in FP32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.certify.inputs import only_input, places_in, read_values
from verify.certify.llamacpp.judged import Judged, judged
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.llamacpp.gguf_file import GgufFile
from verify.errors import ArgumentError
from verify.reference.certificates.certify import certify
from verify.reference.certificates.elementwise import Gated, ResidualAdd
from verify.reference.certificates.layer_op import Inputs, LayerOp
from verify.reference.certificates.norm import RmsNorm
from verify.reference.certificates.result import Outcome
from verify.reference.certificates.rotary import Rope
from verify.reference.layers.arithmetic import FP32_UNIT
from verify.reference.layers.rope import Pairing

Rows = NDArray[np.int64]
_INTERLEAVED = ("llama",)
_HALVES = ("qwen2", "qwen3", "gemma3")
"""How ``llama_model_rope_type`` of llama.cpp pairs the channels."""


def judge_norm(dump: Dump, record: Record, rows: Rows, file: GgufFile, weight: str) -> Judged:
    """An RMSNorm with its weight: the product of the weight and the norm before it.

    Raises:
        ArgumentError: the product of something else.
    """
    normed = only_input(dump, record)
    if normed.attributes.get("operation") != "RMS_NORM":
        raise ArgumentError("no norm", where=record.tap, found=normed.tap)
    inputs = {
        "x": _rows_of(dump, record, only_input(dump, normed), rows),
        "weight": file.values(weight).reshape(-1),
    }
    op = RmsNorm(eps=file.number("attention.layer_norm_rms_epsilon"), cast="before-weight")
    return _certified(dump, record, rows, inputs, op)


def judge_rope(dump: Dump, record: Record, rows: Rows, file: GgufFile) -> Judged:
    """Rotary embedding by the base that the file states.

    Raises:
        ArgumentError: scaled angles, or an architecture whose pairs are not known.
    """
    name = file.architecture
    if name not in _INTERLEAVED + _HALVES:
        raise ArgumentError("pairs are not known", where=file.path, found=name)
    scaled = [key for key in ("rope.scaling.type", "rope.scaling.factor") if file.states(key)]
    if scaled or "rope_freqs.weight" in file:
        raise ArgumentError("no model of scaled angles", where=file.path, found=scaled)
    x = _rows_of(dump, record, only_input(dump, record), rows)
    x = x.reshape(len(x), record.shape[-2], -1)
    pairing: Pairing = "interleaved" if name in _INTERLEAVED else "half"
    op = Rope(
        pairing=pairing,
        theta=file.number("rope.freq_base", 10000.0),
        rotated=int(file.number("rope.dimension_count", x.shape[-1])),
        angle="recurrence",
    )
    positions = dump.rows(record).position[rows].astype(np.float64)[:, None]
    return _certified(dump, record, rows, {"x": x, "positions": positions}, op)


def judge_gate(dump: Dump, record: Record, rows: Rows) -> Judged:
    """silu(gate) * up in one operation."""
    gate, up = _two(dump, record)
    if "gate" not in gate.tap:
        gate, up = up, gate
    inputs = {
        "gate": _rows_of(dump, record, gate, rows),
        "up": _rows_of(dump, record, up, rows),
    }
    return _certified(dump, record, rows, inputs, Gated("silu"))


def judge_sum(dump: Dump, record: Record, rows: Rows) -> Judged:
    """The residual stream plus what a block adds."""
    a, b = _two(dump, record)
    inputs = {"a": _rows_of(dump, record, a, rows), "b": _rows_of(dump, record, b, rows)}
    return _certified(dump, record, rows, inputs, ResidualAdd())


def judge_lookup(dump: Dump, record: Record, rows: Rows, file: GgufFile, table: str) -> Judged:
    """Rows of the embedding: the scale of a block times its integers, plus its minimum. Products are
    exact in FP32, so a value goes through at most two roundings.

    Raises:
        ArgumentError: the ids were not recorded.
    """
    places = dump.rows(record).position[rows]
    ids = {
        int(at): int(read)
        for each in dump.records()
        if each.tap == "tokens.in" and each.step == record.step
        for at, read in zip(
            dump.rows(each).position, read_values(dump, each).reshape(-1), strict=True
        )
    }
    if missing := [int(at) for at in places if int(at) not in ids]:
        raise ArgumentError("ids were not recorded", where=record.tap, found=missing[:3])
    exact = file.values(table)[[ids[int(at)] for at in places]].astype(np.float64)
    output = read_values(dump, record)[rows]
    limit = 4 * FP32_UNIT * np.abs(exact) + float(np.finfo(np.float32).smallest_subnormal)
    used = float(np.nan_to_num(np.abs(output - exact) / limit, nan=np.inf).max(initial=0.0))
    outcome = Outcome.EXPLAINED if used <= 1.0 else Outcome.DEFECT
    return Judged(outcome, used, f"embedding uses {used:.3g} of its bound")


def _two(dump: Dump, record: Record) -> tuple[Record, Record]:
    read = [source.seq for source in record.inputs if source.kind == "record"]
    if len(read) != 2 or read[0] is None or read[1] is None:
        raise ArgumentError("not two recorded inputs", where=record.tap, found=len(read), allowed=2)
    return dump.record(read[0], record.rank), dump.record(read[1], record.rank)


def _rows_of(dump: Dump, record: Record, read: Record, rows: Rows) -> NDArray[np.float64]:
    at = places_in(dump, record, read)[rows]
    return np.asarray(read_values(dump, read)[at], np.float64)


def _certified(dump: Dump, record: Record, rows: Rows, inputs: Inputs, op: LayerOp) -> Judged:
    output = read_values(dump, record)[rows]
    if "x" in inputs:
        output = output.reshape(inputs["x"].shape)
    return judged(certify(output, inputs, op, store=record.dtype))
