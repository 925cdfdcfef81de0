"""The inputs of a recorded operation, as its rows: from the records and weights it was computed
from, or from those that the user names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.certify.names import RecordName, find_records
from verify.certify.weights import WeightSource
from verify.dumps.format import open_dump
from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError
from verify.formats import decode
from verify.taps.words import same_places

Values = NDArray[Any]

# Which recorded inputs take which role, by a part of their tap; "" takes what is left in order.
_ROLES: dict[str, tuple[tuple[str, str], ...]] = {
    "gated": (("gate", "gate"), ("up", "up")),
    "residual_add": (("a", ""), ("b", ""), ("c", "")),
    "product": (("a", ""), ("b", "")),
    "embedding": (("ids", ""),),
    "select": (("logits", ""),),
}
_BIAS = ("bias",)


def read_values(dump: Dump, record: Record) -> Values:
    """The row matrix [rows, row_length] of a record: float64, or int64 for integer records.

    Raises:
        ArgumentError: the record keeps no words.
    """
    words = dump.read_words(record)
    values: Values = decode(words, record.dtype)
    return values


def record_inputs(dump: Dump, record: Record) -> list[Record]:
    """The records that ``record`` was computed from, beside weights: at least one.

    Raises:
        ArgumentError: none, or an input that was not recorded.
    """
    read = [source for source in record.inputs if source.kind != "weight"]
    if not read or any(source.seq is None for source in read):
        raise ArgumentError(
            "an input was not recorded", where=record.tap,
            found=", ".join(source.kind for source in read) or "no input", allowed="records",
        )  # fmt: skip
    return [dump.record(source.seq, record.rank) for source in read if source.seq is not None]


def only_input(dump: Dump, record: Record) -> Record:
    """The one record that ``record`` was computed from, beside weights.

    Raises:
        ArgumentError: several inputs, or one that was not recorded.
    """
    read = record_inputs(dump, record)
    if len(read) != 1:
        raise ArgumentError("not one recorded input", where=record.tap, found=len(read), allowed=1)
    return read[0]


def check_rows(dump: Dump, record: Record, read: Record) -> None:
    """That an input has the rows of the record: the logits of a prompt, for one, are of its last
    position, and what they read is of all.

    Raises:
        ArgumentError: it has others.
    """
    if not same_places(dump.rows(record), dump.rows(read)):
        raise ArgumentError(
            "an input has other rows", where=record.tap, found=read.tap, allowed="the same rows"
        )


def common_places(
    dump: Dump, record: Record, read: Record
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the record that stand at a place of an input, and that input's rows there. Padding has no
    place."""
    own, other = dump.rows(record), dump.rows(read)
    if same_places(own, other):
        rows = np.flatnonzero(own.position >= 0)
        return rows, rows
    at = {
        place: row
        for row, place in enumerate(zip(other.sequence, other.position.tolist(), strict=True))
    }
    pairs = [
        (row, at[place])
        for row, place in enumerate(zip(own.sequence, own.position.tolist(), strict=True))
        if place in at and place[1] >= 0
    ]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def places_in(dump: Dump, record: Record, read: Record) -> NDArray[np.int64]:
    """Which row of an input each row of the record stands at: the logits of a prompt, for one, are of
    its last position, and what they read is of all.

    Raises:
        ArgumentError: a row of the record that the input lacks.
    """
    own, other = dump.rows(record), dump.rows(read)
    if same_places(own, other):
        return np.arange(len(own.position))
    at = {
        place: row
        for row, place in enumerate(zip(other.sequence, other.position.tolist(), strict=True))
    }
    wanted = list(zip(own.sequence, own.position.tolist(), strict=True))
    if missing := [place for place in wanted if place not in at]:
        raise ArgumentError(
            "an input lacks rows", where=record.tap, found=f"{read.tap}: {missing[0]}",
            allowed="a row at each position",
        )  # fmt: skip
    return np.array([at[place] for place in wanted], np.int64)


def gather_inputs(
    dump: Dump,
    record: Record,
    op: Any,
    weights: WeightSource,
    named: Mapping[str, RecordName],
) -> dict[str, Any]:
    """Inputs of ``op`` by name.

    Args:
        named: inputs that the user gave; they replace recorded ones.

    Raises:
        ArgumentError: inputs that were not recorded, or more than the operation reads.
    """
    found = _by_role(dump, record, op)
    inputs: dict[str, Any] = {name: read_values(dump, source) for name, source in found.items()}
    for source in record.inputs:
        if source.kind == "weight" and source.name and (role := _weight_role(op, source.name)):
            inputs[role] = weights.get(source.name).detach()
    if op.name == "linear" and "weight" in inputs and _multiplies_as_stored(record):
        inputs["weight"] = inputs["weight"].t()
    for name, other in named.items():
        inputs[name] = _read_named(other, record)
    if op.name == "rope":
        inputs = _with_heads(inputs)
    if op.name in ("rms_norm", "layer_norm"):
        inputs = _norm_of_heads(inputs)
    if op.name == "embedding" and "ids" in inputs:
        inputs["ids"] = inputs["ids"].reshape(-1)
    return inputs


def _by_role(dump: Dump, record: Record, op: Any) -> dict[str, Record]:
    """Role -> record, from the provenance of the record."""
    base = op.name.partition(" ")[0]
    sources = [
        dump.record(source.seq, record.rank)
        for source in record.inputs
        if source.kind == "record" and source.seq is not None
    ]
    if base == "rope":
        return _rope_roles(sources)
    roles = _ROLES.get(base, (("x", ""),))
    taken: dict[str, Record] = {}
    for role, part in roles:
        fitting = [s for s in sources if part in s.tap and s not in taken.values()]
        if fitting:
            taken[role] = fitting[0]
    left = [source for source in sources if source not in taken.values()]
    if base == "gated" and set(taken) == {"up"} and left:
        taken["gate"] = left.pop(0)  # an activation's own tap names neither
    if left and base != "embedding":
        raise ArgumentError(
            f"{op.name} does not read so many tensors",
            where=record.tap,
            found=", ".join(source.tap for source in sources),
            allowed=", ".join(role for role, _ in roles),
            hint="name the operation with --op, and its inputs with --input NAME=RUN::TAP@STEP",
        )
    return taken


def _rope_roles(sources: list[Record]) -> dict[str, Record]:
    tables = [source for source in sources if "rotary" in source.tap]
    others = [source for source in sources if "rotary" not in source.tap]
    roles = {"cos": tables[:1], "sin": tables[1:2], "x": others[:1]}
    return {name: found[0] for name, found in roles.items() if found}


def _multiplies_as_stored(record: Record) -> bool:
    """Whether the weight is [in, out], as that of GPT-2's Conv1D: a product without a transposition."""
    products = {"aten.mm", "aten.addmm"}.intersection(record.ops)
    return bool(products) and not {"aten.t", "aten.transpose", "aten.permute"}.intersection(
        record.ops
    )


def _weight_role(op: Any, name: str) -> str | None:
    """``weight``, ``bias`` or ``table``, where the operation reads such an input."""
    role = "bias" if name.rpartition(".")[2] in _BIAS else "weight"
    if role == "weight" and "table" in op.inputs:
        return "table"
    return role if role in (*getattr(op, "inputs", ()), *getattr(op, "optional", ())) else None


def _read_named(name: RecordName, record: Record) -> Values:
    """An input by name; without a step, that of the record's own."""
    dump = open_dump(name.run)
    step = record.step if name.step is None else name.step
    return read_values(dump, find_records(dump, RecordName(name.run, name.tap, step))[0])


def _with_heads(inputs: dict[str, Any]) -> dict[str, Any]:
    """Rows [rows, heads * dim] as [rows, heads, dim]; tables [rows, dim] hold each angle twice."""
    cos = inputs.get("cos")
    if cos is None or "x" not in inputs:
        return inputs
    dim = cos.shape[-1]
    x = inputs["x"]
    if x.shape[-1] % dim:
        raise ArgumentError(
            "the heads do not have the size of the table",
            where="x, cos",
            found=f"rows of {x.shape[-1]} and {dim}",
            allowed="rows of heads * dim elements",
        )
    halves = {name: inputs[name][:, None, : dim // 2] for name in ("cos", "sin")}
    return {**inputs, "x": x.reshape(len(x), -1, dim), **halves}


def _norm_of_heads(inputs: dict[str, Any]) -> dict[str, Any]:
    """Rows [rows, heads * dim] of a norm over each head, as weights of [dim] tell, as [rows, heads, dim]."""
    x, weight = inputs.get("x"), inputs.get("weight")
    size = 0 if weight is None else int(np.prod(weight.shape))
    if x is None or not 0 < size < x.shape[-1] or x.shape[-1] % size:
        return inputs
    return {**inputs, "x": x.reshape(len(x), -1, size)}


def equal_inputs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Names of the inputs in which two sides differ."""

    def plain(value: Any) -> Values:
        return np.asarray(value.double().numpy() if hasattr(value, "detach") else value)

    return [
        name
        for name in a
        if name not in b or not np.array_equal(plain(a[name]), plain(b[name]), equal_nan=True)
    ]
