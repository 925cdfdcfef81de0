"""Turns a tapped tensor into a record: rows, words, inputs; the only caller of the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verify.dumps.capture.axes import fits, infer_axes
from verify.dumps.capture.identity import Call, Identity
from verify.dumps.capture.key_rows import KeyRowSelector
from verify.dumps.capture.positions import PADDING, RowNames, Step
from verify.dumps.capture.selection import TOKEN_TAPS, Levels
from verify.dumps.capture.storages import Ancestry, StorageTable, merge
from verify.dumps.capture.tensor_words import dtype_name, row_matrix
from verify.dumps.capture.tracing import Tracer
from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.schema import Input, Record, Rows
from verify.dumps.layout import ATTRIBUTE, Layouts
from verify.dumps.summaries import row_sketches, row_statistics
from verify.dumps.window import Spans
from verify.errors import ArgumentError


class Recorder:
    """Records tensors in execution order."""

    def __init__(
        self,
        writer: DumpWriter,
        table: StorageTable,
        provenance: Tracer | Identity,
        levels: Levels,
        axes: Mapping[str, str],
        rows: Spans | None = None,
        layouts: Layouts | None = None,
    ) -> None:
        """
        Args:
            rows: positions whose rows are stored; None: all.
            layouts: declared ones, for the attributes of the records.
        """
        self.provenance = provenance
        self.records = 0
        self._writer = writer
        self._table = table
        self._levels = levels
        self._keys = KeyRowSelector()
        self._given_axes = dict(axes)
        self._axes: dict[str, str] = {}
        self._occurrences: Counter[str] = Counter()
        self._without_token: Counter[tuple[str, int]] = Counter()
        self._step: Step | None = None
        self._rows = rows
        self._layouts = layouts or Layouts()
        self._counting = False

    def begin(self, step: Step, *, counting: bool = False) -> None:
        """``counting``: the step is outside of the window; its rows are counted, since later visits
        depend on them, and only its token ids are stored."""
        self._step = step
        self._counting = counting
        self._occurrences.clear()

    def end(self) -> None:
        """Commit the step."""
        self._step = None
        self._table.forget_freed()
        self._writer.flush()

    def record(
        self,
        tap: str,
        tensor: torch.Tensor,
        *,
        axes: str | None = None,
        columns: np.ndarray | None = None,
        call: Call | None = None,
        attributes: dict[str, Any] | None = None,
        extra: tuple[Ancestry, ...] = (),
    ) -> int:
        """Store ``tensor`` as it is now and return the ``seq`` of its record.

        Args:
            tap: name of the place.
            axes: names of the axes; inferred where None.
            columns: the columns of the step that the token axis holds; all (or those whose
                logits are computed) where None.
            call: where the tensor came from, for captures without a trace.
            attributes: scalars that the operation read.
            extra: inputs that no trace can see.
        """
        assert self._step is not None
        if self._counting and tap not in TOKEN_TAPS:
            return self._count(tap, tensor, axes)
        with self.provenance.paused():
            axes = axes or self._axes_of(tap, tensor, self._step)
            same = self._table.recorded(tensor)
            if same is not None and (same.step, same.axes) == (self._step.index, axes):
                ancestry = Ancestry.of(Input(kind="record", seq=same.seq))
                record = self._describe(tap, tensor, axes, ancestry, attributes)
                record.kept, record.same_as = "same", same.seq
                self._writer.add(record, _NO_ROWS, None)
            else:
                found = _UNSEEN if self._counting else self.provenance.explain(tensor, call)
                ancestry = merge([found, *extra])
                record = self._describe(tap, tensor, axes, ancestry, attributes)
                self._store(record, tensor, columns)
                self._table.mark(tensor, record.seq, self._step.index, axes)
        return record.seq

    def _count(self, tap: str, tensor: torch.Tensor, axes: str | None) -> int:
        """What storing ``tensor`` would have counted; there is no record, so its seq is -1."""
        assert self._step is not None
        with self.provenance.paused():
            axes = axes or self._axes_of(tap, tensor, self._step)
            names = axes.split()
            key = (tap, self._occurrences[tap])
            self._occurrences[tap] += 1
            if "s" not in names and {"b", "t"} & {*names}:
                return -1  # the step itself counts these rows
            same = self._table.recorded(tensor)
            if same is not None and (same.step, same.axes) == (self._step.index, axes):
                return -1
            if "s" in names:
                self._keys.select(key, tensor, axes, self._step, written=False)
            else:
                self._without_token[key] += 1
            self._table.mark(tensor, -1, self._step.index, axes)
        return -1

    def _describe(
        self,
        tap: str,
        tensor: torch.Tensor,
        axes: str,
        ancestry: Ancestry,
        attributes: dict[str, Any] | None,
    ) -> Record:
        assert self._step is not None
        occurrence = self._occurrences[tap]
        self._occurrences[tap] += 1
        layout = self._layouts.of(tap)
        if layout is not None:
            attributes = {**(attributes or {}), ATTRIBUTE: str(layout.of(tensor.ndim))}
        record = Record(
            seq=self.records,
            step=self._step.index,
            tap=tap,
            occurrence=occurrence,
            epoch=self.provenance.collectives,
            axes=axes,
            dtype=dtype_name(tensor, tap),
            shape=list(tensor.shape),
            strides=list(tensor.stride()),
            storage_offset=int(tensor.storage_offset()),
            inputs=list(ancestry.inputs),
            ops=list(ancestry.ops),
            attributes=attributes or {},
        )
        self.records += 1
        return record

    def _store(self, record: Record, tensor: torch.Tensor, columns: np.ndarray | None) -> None:
        assert self._step is not None
        axes = record.axes.split()
        if "s" in axes:
            key = (record.tap, record.occurrence)
            new = self._keys.select(key, tensor, record.axes, self._step)
            names, words, digest = new.names, new.words, new.digest
            record.carried = new.carried
        else:
            words = row_matrix(tensor, record.axes)
            digest = row_digests(words, record.dtype)
            names = self._names(record, columns)
            if self._rows is not None and record.tap not in TOKEN_TAPS:
                names, words, digest = _within(self._rows, names, words, digest)
        record.row_length = words.shape[1]
        record.kept = self._levels.of(record.tap)
        rows = _rows(names, digest, words, record)
        self._writer.add(record, rows, words if record.kept == "full" else None, owned=True)

    def _names(self, record: Record, columns: np.ndarray | None) -> RowNames:
        """Names of the rows of a tensor without a key axis."""
        step = self._step
        assert step is not None
        size = dict(zip(record.axes.split(), record.shape, strict=True))
        if "t" not in size and "b" not in size:
            key = (record.tap, record.occurrence)
            visit = self._without_token[key]
            self._without_token[key] += 1
            return RowNames(
                np.array([""], object), np.array([PADDING], np.int64), np.array([visit], np.int64)
            )
        tokens = size.get("t", 1) if "b" in size else size["t"] // max(step.batch, 1)
        if columns is None and tokens != step.tokens:
            columns = step.kept
        names = step.row_names(columns)
        if len(names) != tokens * size.get("b", step.batch):
            raise ArgumentError(
                "the token axis of a tensor does not fit the positions of the step",
                where=record.tap,
                found=f"shape {record.shape} as axes {record.axes!r}",
                allowed=f"{step.batch} sequences of {step.tokens} positions",
                hint="name the axes of this tap (axes={glob: names}), or give the columns",
            )
        return names

    def _axes_of(self, tap: str, tensor: torch.Tensor, step: Step) -> str:
        given = self._levels.match(self._given_axes, tap)
        if given is not None:
            if len(given.split()) == tensor.ndim:
                return given
            raise ArgumentError(
                "the axes given for a tap do not fit its tensor",
                where=tap,
                found=f"axes {given!r} for shape {list(tensor.shape)}",
                allowed="one name an axis",
            )
        counts = [step.tokens, *([] if step.kept is None else [len(step.kept)])]
        known = self._axes.get(tap)
        if known is not None and fits(known, tensor.shape, step.batch, counts):
            return known
        kept = None if step.kept is None else len(step.kept)
        found = infer_axes(tensor.shape, tensor.stride(), step.batch, step.tokens, kept)
        return self._axes.setdefault(tap, found) if tap not in self._axes else found


_UNSEEN = Ancestry.of(Input(kind="unknown", name="a step outside of the window"))
_NO_ROWS = Rows(*(np.empty(0, kind) for kind in (object, np.int64, np.int64, np.uint64)))


def _within(
    spans: Spans, names: RowNames, words: np.ndarray, digest: np.ndarray
) -> tuple[RowNames, np.ndarray, np.ndarray]:
    """The rows at these positions, with padding and rows without a position."""
    keep = spans.mask(names.position) | (names.position == PADDING)
    if keep.all():
        return names, words, digest
    names = RowNames(names.sequence[keep], names.position[keep], names.visit[keep])
    return names, words[keep], digest[keep]


def _rows(names: RowNames, digest: np.ndarray, words: np.ndarray, record: Record) -> Rows:
    rows = Rows(names.sequence, names.position, names.visit, digest)
    if record.kept == "digest":
        rows.sketch = row_sketches(words, record.dtype)
    if record.kept != "full":
        rows.statistics = row_statistics(words, record.dtype)
    return rows
