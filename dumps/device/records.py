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
        sequences: Sequence[str],
        *,
        kept: Sequence[int] | None = None,
    ) -> None:
        """Append the records of a step.

        Args:
            positions: [b, t] int64, -1 for padding.
            sequences: one id a batch row.
            kept: columns of t that a tensor with fewer positions holds, logits for example.

        Raises:
            ArgumentError: a tensor whose rows are not positions of the step.
            StorageError: as :class:`DumpWriter`.
        """
        columns = None if kept is None else np.asarray(kept, np.int64)
        step = self._tracker.begin(np.asarray(positions, np.int64), sequences, kept=columns)
        # Words go first: their records are written one by one, the others as one block.
        for region in drained.regions:
            if region.words:
                self._add_words(drained, region, step)
        regions = [region for region in drained.regions if not region.words]
        if regions:
            self._add_block(drained, regions, step)

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
