"""Small dumps, written through the real writer, whose every row is given by the test.

    with SyntheticRun(path, {"poem#0": [5, 3, 9]}) as run:
        with run.step():
            ids = run.add("tokens.in", [[5], [3], [9]], "b t", dtype="int64")
            run.add("embed.out", values, "b t d", inputs=[ids, Weight("embed.weight")])

Rows are identified as a capture does it: ``rows`` are (sequence, position) pairs, visits are
counted, and occurrences count a tap within its step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from verify.dumps.digests import row_digests
from verify.dumps.format import Dump, DumpWriter, open_dump
from verify.dumps.format import schema as fmt
from verify.dumps.summaries import row_sketches, row_statistics
from verify.formats import FORMATS, encode, word_dtype

Row = tuple[str | None, int]


@dataclass(frozen=True)
class Weight:
    """A parameter as an input."""

    name: str


@dataclass(frozen=True)
class Value:
    """A tensor from outside as an input."""

    name: str
    digest: str


UNKNOWN = object()
"""An input that was not recorded."""


class SyntheticRun:
    """One run, one rank (``rank``) of it.

    Args:
        path: where the dump goes.
        sequences: id -> prompt.
        weights: name -> digest.
    """

    def __init__(
        self,
        path: Path,
        sequences: dict[str, list[int]],
        *,
        settings: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        env: dict[str, Any] | None = None,
        weights: dict[str, str] | None = None,
        architecture: str = "Toy",
        tape: fmt.Tape | None = None,
        token_text: dict[str, str] | None = None,
        sampling: dict[str, Any] | None = None,
        run_id: str = "",
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.path = path
        self.sequences = [fmt.Sequence(id=name, prompt=list(p)) for name, p in sequences.items()]
        manifest = fmt.Manifest(
            run_id=run_id or path.name,
            workload=fmt.Workload(
                sequences=self.sequences,
                tape=tape,
                token_text=dict(token_text or {}),
                sampling=sampling or {"kind": "greedy"},
            ),
            model=fmt.Model(
                name="toy", architecture=architecture, config=config or {}, weights=weights or {}
            ),
            settings=settings or {},
            env=env or {},
            ranks=ranks,
        )
        self.writer = DumpWriter(path, manifest, rank=rank)
        self._seq = 0
        self._step = -1
        self._visits: Counter[Any] = Counter()
        self._occurrences: Counter[str] = Counter()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One forward pass; committed at its end."""
        self._step += 1
        self._occurrences.clear()
        yield
        self.writer.flush()

    def add(
        self,
        tap: str,
        values: Any,
        axes: str = "b t d",
        *,
        rows: Sequence[Row] | None = None,
        dtype: str = "float32",
        inputs: Sequence[Any] = (),
        ops: Sequence[str] = (),
        attributes: dict[str, Any] | None = None,
        kept: fmt.Kept = "full",
        same_as: int | None = None,
        shape: Sequence[int] | None = None,
        carried: int = 0,
        epoch: int = 0,
    ) -> int:
        """Record one tensor; gives its ``seq``.

        Args:
            values: row matrix [rows, row_length]: floats are rounded to ``dtype``, unsigned words
                of its width are taken as they are.
            rows: identity of each row; default: positions 0, 1, ... of the only sequence.
            inputs: seq of records, :class:`Weight`, :class:`Value` or :data:`UNKNOWN`.
            shape: default: 1 for the first axes, then rows and row length.
        """
        words = to_words(values, dtype)
        identities = rows if rows is not None else self._default_rows(len(words))
        names = axes.split()
        record = fmt.Record(
            seq=self._seq,
            step=self._step,
            tap=tap,
            occurrence=self._occurrences[tap],
            epoch=epoch,
            axes=axes,
            dtype=dtype,
            shape=list(shape or _shape(names, words)),
            strides=[1] * len(names),
            kept=kept,
            same_as=same_as,
            inputs=[_input(source) for source in inputs],
            ops=list(ops),
            attributes=attributes or {},
            row_length=words.shape[1],
            n_rows=len(words),
            carried=carried,
        )
        rows_of = self._rows(tap, identities, words, dtype, kept)
        self.writer.add(
            record, None if kept == "same" else rows_of, words if kept == "full" else None
        )
        self._occurrences[tap] += 1
        self._seq += 1
        return record.seq

    def _default_rows(self, count: int) -> list[Row]:
        return [(self.sequences[0].id, position) for position in range(count)]

    def _rows(
        self, tap: str, rows: Sequence[Row], words: np.ndarray, dtype: str, kept: fmt.Kept
    ) -> fmt.Rows:
        visits = []
        for sequence, position in rows:
            key = (tap, self._occurrences[tap], sequence, position)
            visits.append(self._visits[key])
            self._visits[key] += 1
        sequences = np.empty(len(rows), object)
        sequences[:] = [sequence for sequence, _ in rows]
        return fmt.Rows(
            sequence=sequences,
            position=np.array([position for _, position in rows], np.int64),
            visit=np.array(visits, np.int64),
            digest=row_digests(words, dtype),
            sketch=row_sketches(words, dtype) if kept == "digest" else None,
            statistics=row_statistics(words, dtype),
        )

    def close(self, generated: dict[str, list[int]] | None = None) -> None:
        """Complete the run."""
        for sequence in self.sequences:
            sequence.generated = list((generated or {}).get(sequence.id, []))
        self.writer.close(self.sequences if self.writer.rank == 0 else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def open(self) -> Dump:
        return open_dump(self.path)


def to_words(values: Any, dtype: str) -> np.ndarray:
    """A row matrix as raw words of ``dtype``."""
    array = np.asarray(values)
    if array.dtype == word_dtype(dtype) and FORMATS[dtype].kind != "uint":
        return np.ascontiguousarray(array)
    if FORMATS[dtype].kind == "float":
        return encode(array.astype(np.float64), dtype)
    return np.ascontiguousarray(array.astype(dtype)).view(word_dtype(dtype))


def _shape(names: list[str], words: np.ndarray) -> list[int]:
    """Rows on the last token axis, row length on the last free one, 1 elsewhere."""
    tokens = [i for i, name in enumerate(names) if name in ("b", "t", "s")]
    free = [i for i in range(len(names)) if i not in tokens]
    shape = [1] * len(names)
    if tokens:
        shape[tokens[-1]] = len(words)
    if free:
        shape[free[-1]] = words.shape[1]
    return shape


def _input(source: Any) -> fmt.Input:
    match source:
        case Weight(name):
            return fmt.Input(kind="weight", name=name)
        case Value(name, digest):
            return fmt.Input(kind="value", name=name, digest=digest)
        case int():
            return fmt.Input(kind="record", seq=source)
        case _:
            return fmt.Input(kind="unknown")
