"""Drained steps into a dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from verify.dumps.capture.positions import PADDING, PositionTracker, Step
from verify.dumps.device.buffers import TapBuffers
from verify.dumps.device.drain import DrainedStep
from verify.dumps.device.layout import Region
from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.block import StepTemplate
from verify.dumps.format.schema import Input, Record, Rows
from verify.errors import ArgumentError

Names = tuple[np.ndarray, np.ndarray, np.ndarray]


class StepRecords:
    """Writes steps of a ring; the caller says which positions of which sequences each computed.

    The writer commits when its caller asks it to, or when much is pending.
    """

    def __init__(self, writer: DumpWriter, buffers: TapBuffers) -> None:
        self.records = 0
        self._writer, self._buffers = writer, buffers
        self._tracker = PositionTracker()
        self._templates: dict[tuple[int, ...], StepTemplate] = {}
        self._visits: Counter[tuple[int, int]] = Counter()

    def add(
        self,
        drained: DrainedStep,
        positions: np.ndarray,
        sequences: Sequence[str | None],
        *,
        kept: Sequence[int] | None = None,
        ids: np.ndarray | None = None,
    ) -> None:
        """Append the records of a step.

        Args:
            positions: [b, t] int64, -1 for padding; [n] of a flattened batch.
            sequences: one id a batch row; one a row of a flattened batch, None for padding.
            kept: columns of t that a tensor with fewer positions holds, logits for example.
            ids: int64, token ids at the positions of a flattened batch.

        Raises:
            ArgumentError: a tensor whose rows are not positions of the step.
            StorageError: as :class:`DumpWriter`.
        """
        columns = None if kept is None else np.asarray(kept, np.int64)
        at = np.asarray(positions, np.int64)
        if at.ndim == 1:
            step: Step = self._tracker.begin_flat(at, sequences, kept=columns)
        else:
            step = self._tracker.begin(at, [str(name) for name in sequences], kept=columns)
        if ids is not None:
            self._add_ids(ids, step)
        # Words go first: their records are written one by one, the others as one block.
        for region in drained.regions:
            if region.words:
                self._add_words(drained, region, step)
        regions = [region for region in drained.regions if not region.words]
        if regions:
            self._add_block(drained, regions, step)

    def _add_ids(self, ids: np.ndarray, step: Step) -> None:
        words = ids.astype("<i8").view(np.uint64)[:, None]
        record = Record(
            seq=self.records, step=step.index, tap="tokens.in", axes="t", dtype="int64",
            shape=[len(ids)], strides=[1], inputs=[Input(kind="unknown")], row_length=1,
        )  # fmt: skip
        names = step.row_names()
        digest = row_digests(words, "int64")
        self._writer.add(record, Rows(names.sequence, names.position, names.visit, digest), words)
        self.records += 1

    def _add_words(self, drained: DrainedStep, region: Region, step: Step) -> None:
        words = drained.row_words(region)
        assert words is not None
        record = self._record(region)
        record.seq, record.step = self.records, step.index
        names = self._names(region, step)
        digest = row_digests(words, region.observed.dtype)
        if not np.array_equal(digest, drained.digests(region)):
            raise ArgumentError(
                "words and digest of a tap do not belong together",
                where=record.tap,
                hint="the slot was overwritten while it was copied: drain more often",
            )
        self._writer.add(record, Rows(*names, digest), words)
        self.records += 1

    def _add_block(self, drained: DrainedStep, regions: list[Region], step: Step) -> None:
        key = tuple(region.number for region in regions)
        template = self._templates.get(key)
        if template is None:
            template = StepTemplate([self._record(region) for region in regions])
            self._templates[key] = template
        named = [self._names(region, step) for region in regions]
        sequence, position, visit = (np.concatenate(part) for part in zip(*named, strict=True))
        digest = np.concatenate([drained.digests(region) for region in regions])
        rows = Rows(sequence, position, visit, digest)
        if all(region.sketches for region in regions):
            rows.sketch = np.concatenate([drained.sketches(r) for r in regions])
            rows.statistics = np.concatenate([drained.statistics(r) for r in regions])
        self._writer.add_block(template, self.records, step.index, rows)
        self.records += len(regions)

    def _record(self, region: Region) -> Record:
        seen = region.observed
        return Record(
            seq=0, step=0, tap=self._buffers.taps[seen.tap], occurrence=seen.occurrence,
            axes=seen.axes, dtype=seen.dtype, shape=list(seen.shape), strides=list(seen.strides),
            storage_offset=seen.storage_offset, kept="full" if region.words else "digest",
            inputs=[Input(kind="unknown")], row_length=seen.row_length, n_rows=seen.rows,
        )  # fmt: skip

    def _names(self, region: Region, step: Step) -> Names:
        seen = region.observed
        if not seen.row_axes:
            key = (seen.tap, seen.occurrence)
            visit = self._visits[key]
            self._visits[key] += 1
            return np.array([""], object), np.array([PADDING]), np.array([visit])
        rows = step.row_names()
        if seen.rows != len(rows):
            rows = step.row_names(step.kept)
        if seen.rows != len(rows):
            raise ArgumentError(
                "the rows of a tensor are not positions of the step",
                where=self._buffers.taps[seen.tap],
                found=f"shape {list(seen.shape)} as axes {seen.axes!r}",
                allowed=f"{step.batch} sequences of {step.tokens} positions",
            )
        return rows.sequence, rows.position, rows.visit
