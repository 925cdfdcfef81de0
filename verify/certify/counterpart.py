"""What a record of one run is held against, given its counterpart in the other run of the pair.

A model that was exported has the operations of its source. So a record of it is held against the
operation, the weights and the configuration of the record with the same name, on inputs of its own.
Judged by what the exported file itself declares, a wrong epsilon would be found correct.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from verify.certify.moved import COPY, tells_operations
from verify.dumps.format import Dump
from verify.dumps.format.schema import Input, Record
from verify.errors import ArgumentError
from verify.reference.certificates.elementwise import Activation, Gated

_SCALARS = ("eps", "approximate")
_EXPORTED = ("onnxruntime",)


def is_exported(dump: Dump) -> bool:
    """Whether the run is of a model exported from another one."""
    return dump.manifest.capture.get("source", {}).get("format") in _EXPORTED


def as_counterpart(dump: Dump, record: Record, other: Dump, like: Record) -> Record:
    """The record with the operation of ``like``, a record of ``other``, on inputs of its own run.

    Of a source that kept a cache the first step counts: later ones read what earlier ones kept, and
    an exported pass computes whole sequences.

    Raises:
        ArgumentError: ``like`` reads something that has no counterpart at the same step, its run
            does not know its operations, or the record is of 16 bits: ONNX Runtime's CPU provider
            computes these in float32, and an operation reads what was not rounded yet.
    """
    if record.dtype in ("float16", "bfloat16"):
        raise ArgumentError(
            "not what the next operation reads", where=record.tap, found=record.dtype
        )
    if not like.ops and not tells_operations(other):
        raise ArgumentError("the source was captured without operations", where=record.tap)
    like = next((r for r in other.records(like.rank) if r.key == like.key), like)
    own = {(r.tap, r.occurrence, r.step): r.seq for r in dump.records(record.rank)}
    inputs = []
    for source in like.inputs:
        if source.kind != "record" or source.seq is None:
            inputs.append(source)
            continue
        read = other.record(source.seq, like.rank)
        seq = own.get((read.tap, read.occurrence, record.step))
        if seq is None:
            raise ArgumentError(
                "an input of the operation was not recorded",
                where=record.tap,
                found=f"no {read.tap} at step {record.step}",
            )
        inputs.append(Input(kind="record", seq=seq))
    # An exporter writes an attention core as separate operations, and each stores what it gives.
    stored = {"implementation": "eager"} if "implementation" in like.attributes else {}
    return msgspec.structs.replace(
        record, ops=like.ops or [COPY], inputs=inputs, attributes={**like.attributes, **stored}
    )


def as_computed(dump: Dump, op: Any) -> Any:
    """The operation with the arithmetic of the engine that ran it."""
    if is_exported(dump) and isinstance(op, Activation | Gated):
        return replace(op, sigmoid="centred")
    return op


def without_own_scalars(record: Record, like: Record) -> Record:
    """The record without scalars that ``like``, its counterpart, has otherwise: then these are what
    differs, and a side judged by its own would be found correct. The configuration still counts.

    Raises:
        ArgumentError: the scale of an attention core, which no configuration states, differs.
    """
    own, other = record.attributes, like.attributes
    differing = {name for name in own.keys() & other.keys() if own[name] != other[name]}
    if "scale" in differing:
        raise ArgumentError(
            "the runs scale their scores differently", where=record.tap,
            found=own["scale"], allowed=f"that of the other run, {other['scale']}",
        )  # fmt: skip
    if not differing.intersection(_SCALARS):
        return record
    kept = {k: v for k, v in own.items() if k not in _SCALARS or k not in differing}
    return msgspec.structs.replace(record, attributes=kept)
