"""Names of records: ``RUN::TAP`` for every step, ``RUN::TAP@STEP`` for one."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError

SHAPE = "RUN::TAP or RUN::TAP@STEP"


@dataclass(frozen=True, slots=True)
class RecordName:
    """Where a dump is, which tap of it, and which step (None: all)."""

    run: Path
    tap: str
    step: int | None = None

    def __str__(self) -> str:
        return f"{self.run}::{self.tap}" + ("" if self.step is None else f"@{self.step}")


def parse_name(text: str) -> RecordName:
    """Read a record name.

    Raises:
        ArgumentError: no ``::``, an empty part, or a step that is not a number from 0.
    """
    run, separator, rest = text.rpartition("::")
    tap, at, step = rest.partition("@")
    if not separator or not run or not tap:
        raise ArgumentError(
            "not the name of a record",
            where="RECORD",
            found=repr(text),
            allowed=SHAPE,
            hint="for example runs/a::model.norm.out@0; `verify inspect RUN` lists the taps",
        )
    if at and not step.isdecimal():
        raise ArgumentError(
            "a step is a number from 0", where="RECORD", found=repr(text), allowed=SHAPE
        )
    return RecordName(Path(run), tap, int(step) if at else None)


def find_records(dump: Dump, name: RecordName) -> list[Record]:
    """The records of that name, by step; of several occurrences in a step each one.

    Raises:
        ArgumentError: no such tap (close ones are offered), or none in that step.
    """
    records = dump.records()
    at_tap = [record for record in records if record.tap == name.tap]
    if not at_tap:
        close = difflib.get_close_matches(name.tap, {record.tap for record in records}, n=3)
        raise ArgumentError(
            "no such tap in this run",
            where=name.run,
            found=name.tap,
            allowed=", ".join(close) or "a recorded tap",
            hint=f"`verify inspect {name.run}` lists the taps",
        )
    found = [record for record in at_tap if name.step in (None, record.step)]
    if not found:
        steps = sorted({record.step for record in at_tap})
        raise ArgumentError(
            "the tap was not recorded in this step",
            where=name.run,
            found=f"step {name.step}",
            allowed=f"steps {steps[0]} .. {steps[-1]}",
        )
    return found
