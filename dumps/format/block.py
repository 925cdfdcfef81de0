"""All records of a step at once, for captures whose steps look alike.

A decode step repeats the same records with other rows. What is the same is turned into columns
once; each step then costs a few arrays instead of an object a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from verify.dumps.format.invariants import own_fault
from verify.dumps.format.record_table import RECORD_SCHEMA, record_table
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError


class StepTemplate:
    """The records of a step, apart from its number, the ``seq`` of each and the rows.

    Args:
        records: in execution order, ``n_rows`` entered; kept as ``digest`` or ``stats``, without
            records among their inputs. Their ``seq`` and ``step`` do not count.

    Raises:
        ArgumentError: a record that contradicts itself, or of another kind.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        for record in records:
            fault = own_fault(record)
            if fault is not None:
                raise ArgumentError(
                    fault.what, where=record.tap, found=fault.found, allowed=fault.allowed
                )
            if record.kept not in ("digest", "stats") or any(
                source.kind == "record" for source in record.inputs
            ):
                raise ArgumentError(
                    "a block takes records without words, and without records as inputs",
                    where=record.tap,
                    found=record.kept,
                    allowed="digest, stats",
                )
        self.records = list(records)
        self.counts = np.array([record.n_rows for record in records], np.int64)
        self.n_rows = int(self.counts.sum())
        self.axes = {record.tap: record.axes for record in records}

    @cached_property
    def _columns(self) -> pa.Table:
        return record_table(self.records)

    def table(self, seq: int, step: int) -> pa.Table:
        """Lines of records.parquet for step ``step``, the first with ``seq``."""
        count = len(self.records)
        changed = {"seq": np.arange(seq, seq + count), "step": np.full(count, step)}
        table = self._columns
        for name, values in changed.items():
            index = RECORD_SCHEMA.get_field_index(name)
            table = table.set_column(index, RECORD_SCHEMA.field(index), pa.array(values))
        return table

    def row_records(self, seq: int) -> np.ndarray:
        """``seq`` of the record of each row, int64 [n_rows]."""
        return np.repeat(np.arange(seq, seq + len(self.counts)), self.counts)


@dataclass(frozen=True, slots=True)
class Block:
    """A template at a step, waiting to be written."""

    template: StepTemplate
    seq: int
    step: int
    rank: int

    def table(self) -> pa.Table:
        return self.template.table(self.seq, self.step)
