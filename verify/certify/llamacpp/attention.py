"""The attention core of llama.cpp's CPU backend, without flash attention, against FP64.

The cache holds keys and values as float16, and a product with it takes the other side as float16 too:
the queries, and the weights that softmax left in float32 (ggml-cpu.c, ggml_compute_forward_mul_mat, and
``vec_dot_type`` of F16). Scores, softmax and all sums are float32. Queries, keys and values are rounded
here as they are there; what is left are the roundings of :mod:`verify.replay.attention`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verify.certify.inputs import read_values
from verify.certify.llamacpp.judged import Judged
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.llamacpp.gguf_file import GgufFile
from verify.errors import ArgumentError
from verify.reference.certificates.result import Outcome
from verify.reference.layers.arithmetic import FP32_UNIT
from verify.reference.layers.grid import round_to
from verify.replay.attention import DEVIATIONS, Storage, judge_rows

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Those whose attention is plain softmax(q k / sqrt(d)) v over all earlier positions."""
_UNKNOWN = ("attention.sliding_window", "attention.scale", "attn_logit_softcapping")
_ROWS = 8
_STORED = Storage(score=FP32_UNIT, weight=2.0**-11, output=FP32_UNIT, underflow=2.0**-25)
_LEAST = float(np.finfo(np.float32).smallest_subnormal)
CONVENTION = "keys, values, queries and weights of attention rounded to float16"
Values = NDArray[np.float64]


def judge_attention(
    dump: Dump, record: Record, rows: NDArray[np.int64], file: GgufFile, layer: str
) -> Judged:
    """The output of layer ``layer``, from the queries of its step and the keys and values that it and
    the steps before it wrote into the cache. At most 8 of ``rows`` are judged, the first ones.

    Raises:
        ArgumentError: an architecture or a setting without a model, or keys and values that were not
            all recorded.
        ModelError: the header of the file lacks a number of heads.
    """
    _refuse(dump, file)
    heads = int(file.number("attention.head_count"))
    shared = int(file.number("attention.head_count_kv", heads))
    rows = rows[:_ROWS]
    q_record = _last(dump, f"Qcur-{layer}", record.step)
    at = dump.rows(record).position
    if not np.array_equal(dump.rows(q_record).position, at):
        raise ArgumentError("other rows than the queries", where=record.tap, found=q_record.tap)
    q = _half(read_values(dump, q_record)[rows]).reshape(len(rows), heads, -1)
    k, v = (_cached(dump, f"{name}cur-{layer}", record.step, shared) for name in "KV")
    output = read_values(dump, record)[rows].reshape(len(rows), heads, -1)
    allowed = np.arange(len(k)) <= at[rows][:, None]
    scale = float(np.float32(1.0) / np.sqrt(np.float32(q.shape[-1])))
    worst, deviations, where = 0.0, 0.0, ""
    for head in range(heads):
        own = head * shared // heads
        found = judge_rows(q[:, head], k[:, own], v[:, own], allowed, scale, _STORED)
        with np.errstate(invalid="ignore"):
            error = np.nan_to_num(np.abs(output[:, head] - found.exact), nan=np.inf)
        share = float((error / (found.bound + _LEAST)).max(initial=0.0))
        if share > worst:
            worst, where = share, f"head {head}"
        deviations = max(deviations, float((error / (found.deviation + _LEAST)).max(initial=0.0)))
    reason = f"attention uses {worst:.3g} of its bound, {deviations:.3g} expected deviations"
    if worst > 1.0:
        return Judged(Outcome.DEFECT, worst, f"{reason}, the most in {where}", CONVENTION)
    fits = deviations <= DEVIATIONS
    return Judged(Outcome.EXPLAINED if fits else Outcome.SUSPECT, worst, reason, CONVENTION)


def _refuse(dump: Dump, file: GgufFile) -> None:
    if file.architecture not in _ARCHITECTURES:
        raise ArgumentError(
            "no model of the attention of this architecture", where=file.path,
            found=file.architecture, allowed=", ".join(_ARCHITECTURES),
        )  # fmt: skip
    if found := [key for key in _UNKNOWN if file.states(key)]:
        raise ArgumentError("no model of this attention", where=file.path, found=", ".join(found))
    if dump.manifest.settings.get("flash_attention") != "off":
        raise ArgumentError(
            "no model of flash attention, whose sums are float16", where=dump.path,
            found=dump.manifest.settings.get("flash_attention"), allowed="off",
        )  # fmt: skip
    if "FP16_VA = 1" in str(dump.manifest.settings.get("system")):
        raise ArgumentError("no model of processors that add in float16", where=dump.path)


def _last(dump: Dump, tap: str, step: int) -> Record:
    """What rotary embedding made of it is recorded last under the name."""
    found = [r for r in dump.records() if r.tap == tap and r.step == step]
    if not found:
        raise ArgumentError("not recorded", where=f"{tap}, step {step}")
    return max(found, key=lambda r: r.occurrence)


def _cached(dump: Dump, tap: str, step: int, heads: int) -> Values:
    """Keys or values of all positions up to those of the step, [keys, heads, dim], as the cache
    holds them."""
    records = [_last(dump, tap, each) for each in range(step + 1)]
    at = np.concatenate([dump.rows(each).position for each in records])
    if not np.array_equal(at, np.arange(len(at))):
        raise ArgumentError("not all positions of the cache were recorded", where=tap)
    values = np.concatenate([read_values(dump, each) for each in records])
    return _half(values).reshape(len(values), heads, -1)


def _half(values: Values) -> Values:
    return round_to(values, "float16")
