"""How a difference grows: along the taps, along the positions, and over both."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verify.bisect.result import GrowthPoint, Heatmap, PositionPoint
from verify.bisect.taps import LOGITS, is_residual, layer_of
from verify.compare.result import Comparison
from verify.compare.run import RowComparison
from verify.formats import get_format

MAX_TAPS = 64
MAX_POSITIONS = 4096
MAX_SEQUENCES = 8


def growth(comparison: Comparison) -> list[GrowthPoint]:
    """One point for each tap of floating-point numbers, in execution order."""
    return [
        GrowthPoint(
            tap=tap.tap,
            layer=layer_of(tap.tap),
            order=tap.order,
            relative_l2=math.inf if tap.nonfinite_mismatches else tap.relative_l2,
            max_ulp=tap.ulp_max,
            differing_share=tap.differing_elements / tap.elements if tap.elements else 0.0,
        )
        for tap in comparison.taps
        if get_format(tap.dtype_a).kind == "float"
    ]


def stream_taps(comparison: Comparison) -> list[str]:
    """The taps of the residual stream, in execution order; without any, all float taps."""
    taps = [tap.tap for tap in comparison.taps if is_residual(tap.tap)]
    if not taps:
        taps = [point.tap for point in growth(comparison) if point.tap != LOGITS]
    step = -(-len(taps) // MAX_TAPS)
    return taps[::-1][:: max(1, step)][::-1]  # the last one, the end of the stream, stays


def by_position(compared: RowComparison) -> list[PositionPoint]:
    """Relative L2 at each position, at the end of the residual stream."""
    taps = stream_taps(compared.comparison)
    if not taps:
        return []
    grids = _Grids(compared, taps[-1:])
    return [
        PositionPoint(sequence=name, position=position, relative_l2=values[0])
        for name in grids.sequences()
        for position, values in grids.columns(name)
        if values[0] is not None
    ]


def heatmaps(compared: RowComparison) -> list[Heatmap]:
    """Relative L2 over residual stream and positions, one map a sequence: those that differ
    first."""
    taps = stream_taps(compared.comparison)
    grids = _Grids(compared, taps)
    found = []
    for name in grids.sequences()[:MAX_SEQUENCES]:
        columns = grids.columns(name)[:MAX_POSITIONS]
        found.append(
            Heatmap(
                taps=taps,
                positions=[position for position, _ in columns],
                values=[[values[i] for _, values in columns] for i in range(len(taps))],
                sequence=name,
            )
        )
    return found


class _Grids:
    """Sums of squares of the compared rows, by sequence, position and tap."""

    def __init__(self, compared: RowComparison, taps: list[str]) -> None:
        x, m = compared.alignment, compared.measures
        self.names = x.a.sequences
        numbers = {tap: i for i, tap in enumerate(taps)}
        codes = x.a.records.by_kind(lambda kind: numbers.get(kind.tap, -1), np.int64)
        tap = codes[x.a.record[x.rows_a]]
        at = np.flatnonzero(compared.compared & (tap >= 0) & (x.a.position[x.rows_a] >= 0))
        entries = x.rows_a[at]
        self.tap, self.taps = tap[at], len(taps)
        self.sequence, self.position = x.a.sequence[entries], x.a.position[entries]
        # Rows with NaN or infinities on one side are infinitely far apart, not equal.
        self.diff_sq = np.where(m.nonfinite[at] > 0, math.inf, m.diff_sq[at])
        self.ref_sq = m.ref_sq[at]
        self.differs = m.differing[at] > 0

    def sequences(self) -> list[str]:
        """Names in order, those with a difference before those without."""
        present = np.unique(self.sequence)
        differing = set(np.unique(self.sequence[self.differs]).tolist())
        ordered = sorted(present.tolist(), key=lambda code: (code not in differing, code))
        return [self.names[code] for code in ordered]

    def columns(self, name: str) -> list[tuple[int, list[float | None]]]:
        """(position, relative L2 of each tap or None where nothing was compared)."""
        mine = self.sequence == self.names.index(name)
        positions, place = np.unique(self.position[mine], return_inverse=True)
        cell = self.tap[mine] * len(positions) + place.reshape(-1)
        shape = (self.taps, len(positions))
        diff = _sums(cell, self.diff_sq[mine], shape)
        count = np.bincount(cell, minlength=self.taps * len(positions)).reshape(shape)
        values = _relative(diff, _sums(cell, self.ref_sq[mine], shape))
        return [
            (
                int(position),
                [float(values[t, i]) if count[t, i] else None for t in range(self.taps)],
            )
            for i, position in enumerate(positions)
        ]


def _sums(
    cell: NDArray[np.int64], values: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    summed = np.bincount(cell, values, shape[0] * shape[1])
    return np.asarray(summed, np.float64).reshape(shape)


def _relative(diff: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(diff / reference)
    return np.where(diff == 0, 0.0, np.where(reference > 0, found, math.inf))
