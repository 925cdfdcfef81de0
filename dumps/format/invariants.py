"""What holds between the records of one rank: asked of a writer's caller and of every file read."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, get_args

import numpy as np

from verify.dumps.format.input_lists import NOBODY
from verify.dumps.format.layout import MAX_SIZE
from verify.dumps.format.records import Records
from verify.dumps.format.schema import Kept, Record
from verify.formats import FORMATS

_KEPT = frozenset(get_args(Kept))
_COUNTS = ("seq", "step", "occurrence", "epoch", "row_length", "n_rows", "carried")


class Fault(NamedTuple):
    """Why a record cannot stand where it stands."""

    what: str
    found: object
    allowed: object


class RowMatrix(NamedTuple):
    """What a record and the one that it repeats must share."""

    dtype: str
    n_rows: int
    row_length: int


@dataclass(slots=True)
class RecordChain:
    """The records of a rank so far, in execution order."""

    last_seq: int = -1
    last_step: int = 0
    roots: dict[int, int] = field(default_factory=dict)
    """seq -> seq of the record that holds its rows: itself unless it is kept as ``same``."""
    matrices: dict[int, RowMatrix] = field(default_factory=dict)

    def append(self, record: Record) -> Fault | None:
        """Take ``record`` as the next one, or say why it cannot be."""
        fault = own_fault(record) or self._order_fault(record) or self._reference_fault(record)
        if fault is None:
            self.last_seq, self.last_step = record.seq, record.step
            root = record.seq if record.same_as is None else record.same_as
            self.roots[record.seq] = root
            if root == record.seq:
                self.matrices[root] = _matrix(record)
        return fault

    def pass_block(self, seq: int, step: int, count: int) -> Fault | None:
        """Take ``count`` records from ``seq`` on, which nothing refers to, or say why not."""
        if seq <= self.last_seq:
            what = "a record is out of execution order, or its seq occurs twice"
            return Fault(what, f"seq {seq}", f"above {self.last_seq}")
        if step < self.last_step:
            what = "a record belongs to a step before that of its predecessor"
            return Fault(what, f"step {step}", f"{self.last_step} or above")
        self.last_seq, self.last_step = seq + count - 1, step
        return None

    def _order_fault(self, record: Record) -> Fault | None:
        if record.seq <= self.last_seq:
            what = "a record is out of execution order, or its seq occurs twice"
            return Fault(what, f"seq {record.seq}", f"above {self.last_seq}")
        if record.step < self.last_step:
            what = "a record belongs to a step before that of its predecessor"
            return Fault(what, f"step {record.step}", f"{self.last_step} or above")
        return None

    def _reference_fault(self, record: Record) -> Fault | None:
        for source in record.inputs:
            if source.kind == "record" and source.seq not in self.roots:
                what = "a record names an input that no earlier record is"
                return Fault(what, f"seq {source.seq}", "the seq of an earlier record of the rank")
        if record.same_as is None:
            return None
        matrix = self.matrices.get(record.same_as)
        if matrix is None:
            what = "a record repeats something that is not an earlier record with rows"
            return Fault(what, f"same_as {record.same_as}", "an earlier record not kept as 'same'")
        if matrix != _matrix(record):
            what = "a record repeats one of another dtype or size"
            return Fault(what, _matrix(record), matrix)
        return None


def first_fault(records: Records) -> tuple[int, Fault] | None:
    """The first record of one rank that cannot stand where it stands, and why."""
    seq, step = records.seq, records.step
    wrong = ~((step >= 0) & (step <= MAX_SIZE) & (records.epoch >= 0) & (records.epoch <= MAX_SIZE))
    wrong |= (seq < 0) | (seq > MAX_SIZE)
    wrong |= records.by_kind(lambda kind: own_fault(kind) is not None)
    wrong[1:] |= (seq[1:] <= seq[:-1]) | (step[1:] < step[:-1])
    limit = int(np.argmax(wrong)) if wrong.any() else len(records)
    # Records before the first wrong one are in order, so that they can be looked up.
    before = records.take(slice(0, limit))
    refers = np.zeros(limit, np.bool_)
    readers, sources = before.edges()
    refers[readers[(sources == NOBODY) | (sources >= readers)]] = True
    same = np.flatnonzero(before.same_as != NOBODY)
    held = before.numbers(before.rank[same], before.same_as[same])
    matrices: dict[RowMatrix, int] = {}
    alike = before.by_kind(lambda kind: matrices.setdefault(_matrix(kind), len(matrices)), np.int64)
    lost = (held == NOBODY) | (held >= same) | (before.same_as[held] != NOBODY)
    refers[same[lost | (alike[held] != alike[same])]] = True
    if refers.any():
        limit = int(np.argmax(refers))
    if limit == len(records):
        return None
    fault = _chain_before(records, limit).append(records[limit])
    assert fault is not None
    return limit, fault


def _chain_before(records: Records, limit: int) -> RecordChain:
    """The chain as the record ``limit`` finds it, with what it refers to."""
    record = records[limit]
    named = [source.seq for source in record.inputs if source.seq is not None]
    named += [] if record.same_as is None else [record.same_as]
    chain = RecordChain()
    if limit:
        chain.last_seq, chain.last_step = records[limit - 1].seq, records[limit - 1].step
    for number in np.flatnonzero(np.isin(records.seq[:limit], named)):
        earlier = records[int(number)]
        chain.roots[earlier.seq] = earlier.seq
        if earlier.same_as is None:
            chain.matrices[earlier.seq] = _matrix(earlier)
    return chain


def _matrix(record: Record) -> RowMatrix:
    return RowMatrix(record.dtype, record.n_rows, record.row_length)


def own_fault(record: Record) -> Fault | None:
    """What is wrong with a record on its own."""
    for name in _COUNTS:
        if not 0 <= getattr(record, name) <= MAX_SIZE:
            what = f"a record has an impossible {name}"
            return Fault(what, getattr(record, name), "0 or above")
    if record.dtype not in FORMATS:
        return Fault("a record has an unknown dtype", repr(record.dtype), ", ".join(FORMATS))
    if record.kept not in _KEPT:
        return Fault("a record is kept in an unknown way", record.kept, ", ".join(sorted(_KEPT)))
    if (record.kept == "same") != (record.same_as is not None):
        what = "same_as goes with a record kept as 'same', and only with it"
        return Fault(what, f"kept {record.kept!r}, same_as {record.same_as}", "both or neither")
    return _shape_fault(record)


def _shape_fault(record: Record) -> Fault | None:
    axes = record.axes.split()
    if not len(axes) == len(record.shape) == len(record.strides):
        what = "axes, shape and strides of a record have different lengths"
        return Fault(what, f"{axes}, {record.shape}, {record.strides}", "one entry an axis")
    if not all(0 <= size <= MAX_SIZE for size in record.shape):
        return Fault("a record has an impossible size", record.shape, "0 or above")
    if record.n_rows * record.row_length > prod(record.shape):
        what = "the rows of a record hold more elements than its shape"
        found = f"{record.n_rows} rows of {record.row_length}"
        return Fault(what, found, f"at most {prod(record.shape)} elements")
    return None
