"""What is in a dump: plain data about its steps, taps and sequences, rendered elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record
from verify.dumps.window import Window
from verify.formats import word_dtype


class TapView(msgspec.Struct, kw_only=True):
    """One tap over the whole run, with what its records have in common."""

    tap: str
    axes: str
    dtypes: list[str]
    shapes: list[list[int]]
    """Distinct shapes in order of appearance."""
    kept: dict[str, int]
    """``full``, ``digest``, ``stats`` or ``same`` -> records kept so."""
    records: int
    rows: int
    row_length: int
    """Elements of a row, the largest if they vary."""
    word_bytes: int
    """Bytes of words stored for this tap."""


class StepView(msgspec.Struct, kw_only=True):
    """Consecutive steps with the same number of records and rows."""

    first: int
    last: int
    records: int
    """In each of the steps."""
    rows: int


class SequenceView(msgspec.Struct, kw_only=True):
    """The tokens of one sequence; a text is None where the manifest lacks the text of a token."""

    id: str
    prompt: list[int]
    generated: list[int]
    prompt_text: str | None
    generated_text: str | None


class Overview(msgspec.Struct, kw_only=True):
    """The result of ``verify inspect RUN``."""

    path: str
    run_id: str
    complete: bool
    problems: list[str]
    model: str
    architecture: str
    settings: dict[str, Any]
    command: list[str]
    ranks: int
    parts: int
    total_bytes: int
    records: int
    rows: int
    steps: list[StepView]
    sequences: list[SequenceView]
    taps: list[TapView]
    verified_bytes: int | None = None
    """Bytes of words that were read against their checksums; None: not asked for."""
    env: dict[str, Any] = msgspec.field(default_factory=dict)
    """What it ran on (docs/env.md)."""
    window: str = ""
    """Steps and rows that the capture was limited to; empty: the whole run."""


def overview(dump: Dump, *, check: bool = False) -> Overview:
    """Everything about a dump except its numbers.

    Args:
        check: also read every tensor against its checksum.

    Raises:
        CorruptDumpError: the tables do not parse, or with ``check`` a tensor is damaged.
    """
    records = dump.records()
    manifest = dump.manifest
    return Overview(
        path=str(dump.path),
        run_id=manifest.run_id,
        complete=dump.complete,
        problems=dump.problems,
        model=manifest.model.name,
        architecture=manifest.model.architecture,
        settings=manifest.settings,
        command=manifest.command,
        ranks=len(dump.ranks),
        parts=dump.part_count,
        total_bytes=dump.total_bytes,
        records=len(records),
        rows=sum(record.n_rows for record in records),
        steps=_steps(records),
        sequences=_sequences(dump),
        taps=_taps(records),
        verified_bytes=verify_words(dump) if check else None,
        env=manifest.env,
        window=str(Window.of(manifest.capture)),
    )


def verify_words(dump: Dump) -> int:
    """Read every tensor against its checksum; the bytes that were read.

    Raises:
        CorruptDumpError: a tensor is not what was stored.
    """
    full = [record for record in dump.records() if record.kept == "full"]
    for record in full:
        dump.verify_tensor(record)
    return sum(map(word_bytes, full))


def word_bytes(record: Record) -> int:
    """Bytes of words that are stored for this record."""
    if record.kept != "full":
        return 0
    return record.n_rows * record.row_length * word_dtype(record.dtype).itemsize


def _steps(records: list[Record]) -> list[StepView]:
    counts = Counter(record.step for record in records)
    rows: Counter[int] = Counter()
    for record in records:
        rows[record.step] += record.n_rows
    found: list[StepView] = []
    for step in sorted(counts):
        last = found[-1] if found else None
        same = last and (last.last + 1, last.records, last.rows) == (step, counts[step], rows[step])
        if last and same:
            last.last = step
        else:
            found.append(StepView(first=step, last=step, records=counts[step], rows=rows[step]))
    return found


def _taps(records: list[Record]) -> list[TapView]:
    """Taps in the order of their first record."""
    order = {record.tap: at for at, record in reversed(list(enumerate(records)))}
    by_tap = sorted(records, key=lambda record: order[record.tap])
    return [_tap(tap, list(found)) for tap, found in groupby(by_tap, key=lambda r: r.tap)]


def _tap(tap: str, records: list[Record]) -> TapView:
    return TapView(
        tap=tap,
        axes=records[0].axes,
        dtypes=list(dict.fromkeys(record.dtype for record in records)),
        shapes=[list(shape) for shape in dict.fromkeys(tuple(r.shape) for r in records)],
        kept=dict(Counter(record.kept for record in records)),
        records=len(records),
        rows=sum(record.n_rows for record in records),
        row_length=max(record.row_length for record in records),
        word_bytes=sum(map(word_bytes, records)),
    )


def _sequences(dump: Dump) -> list[SequenceView]:
    text = dump.manifest.workload.token_text
    return [
        SequenceView(
            id=name,
            prompt=track.prompt,
            generated=track.generated,
            prompt_text=_text(track.prompt, text),
            generated_text=_text(track.generated, text),
        )
        for name, track in dump.tokens().items()
    ]


def _text(ids: Iterable[int], text: dict[str, str]) -> str | None:
    pieces = [text.get(str(token)) for token in ids]
    return None if None in pieces else "".join(piece for piece in pieces if piece is not None)
