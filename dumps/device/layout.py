"""Where the results of each tap lie inside one step of the ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Keep = Literal["digest", "summary", "words"]
"""What a tap leaves of each row beside its digest: nothing, sketch and statistics, or its words."""

HEADER_BYTES: Final = 16  # the stamp of the step that wrote the region, and the region's number
_SKETCH_BYTES, _STATISTICS_BYTES = 16 * 4, 7 * 8
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Observed:
    """One tensor as a tap sees it in a step; the key of its region.

    ``row_axes``: axes that count rows, the slowest first.
    """

    tap: int
    occurrence: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage_offset: int
    dtype: str
    axes: str
    row_axes: tuple[int, ...]
    keep: Keep

    @property
    def rows(self) -> int:
        rows = 1
        for axis in self.row_axes:
            rows *= self.shape[axis]
        return rows

    @property
    def row_length(self) -> int:
        length = 1
        for axis, size in enumerate(self.shape):
            length *= 1 if axis in self.row_axes else size
        return length


@dataclass(frozen=True, slots=True)
class Region:
    """Byte offsets from the start of a step; 0 where a part is not kept."""

    number: int
    observed: Observed
    header: int
    digests: int
    sketches: int = 0
    statistics: int = 0
    words: int = 0


class StepLayout:
    """Regions in the order in which their tensors were first seen. They never move."""

    def __init__(self, step_bytes: int) -> None:
        self.step_bytes = step_bytes
        self.used = _ALIGNMENT
        self.regions: list[Region] = []
        self._known: dict[Observed, Region] = {}

    def place(self, observed: Observed, word_bytes: int) -> Region | None:
        """The region of a tensor; None when the step has no room for it.

        Args:
            word_bytes: bytes of the row matrix.
        """
        region = self._known.get(observed)
        if region is not None:
            return region
        parts = {"header": HEADER_BYTES, "digests": 8 * observed.rows}
        if observed.keep == "summary":
            parts["sketches"] = _SKETCH_BYTES * observed.rows
            parts["statistics"] = _STATISTICS_BYTES * observed.rows
        elif observed.keep == "words":
            parts["words"] = word_bytes
        offsets, at = {}, self.used
        for name, nbytes in parts.items():
            offsets[name] = at
            at += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if at > self.step_bytes:
            return None
        region = Region(number=len(self.regions), observed=observed, **offsets)
        self.used = at
        self.regions.append(region)
        self._known[observed] = region
        return region
