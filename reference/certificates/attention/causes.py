"""Which single fault explains a residual: candidates ranked by how much of it they take away."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.reference.certificates.attention.filters import KeyFilters, Residual
from verify.reference.certificates.attention.walk import Walk
from verify.reference.replay.arithmetic import Arithmetic

_CLEAR = 20.0  # a fall of chi-square by 20 is a likelihood ratio of e^10


@dataclass(frozen=True)
class Cause:
    """A fault in words, and the chi-square that is left once it is allowed for."""

    name: str
    left: float

    def sentence(self, chi2: float, limit: float) -> str:
        """For a report: what it explains of ``chi2``; ``limit`` is what rounding may leave."""
        if self.left <= limit:
            return f"explained by {self.name}: what is left is rounding"
        return f"best explained by {self.name}: it takes away {1 - self.left / chi2:.1%}"


def best_cause(
    walk: Walk, arithmetic: Arithmetic, row: int, res: Residual, found: dict[str, Cause],
    actual: Tensor, limit: float,
) -> Cause | None:  # fmt: skip
    """Another convention if it leaves no more than ``limit``, since nothing was fitted there; else
    the candidate that leaves the least, None if none takes away half of the residual."""
    conventions = _other_conventions(walk, arithmetic, row, res, actual)
    fixed = min(conventions, key=lambda cause: cause.left)
    if fixed.left <= limit and fixed.left < res.chi2() - _CLEAR:
        return fixed
    best = min([*found.values(), *conventions], key=lambda cause: cause.left)
    return best if best.left < 0.5 * res.chi2() else None


def linear_cause(name: str, res: Residual, direction: Tensor, amplitude: float) -> Cause:
    """The fault whose shift is ``amplitude`` times ``direction``."""
    return Cause(name, res.chi2(res.r - amplitude * direction))


def is_whole(amplitude: float) -> bool:
    """A key or tile that is left out or counted twice, and not some other multiple of it: other
    faults also point along a key, at amplitudes that mean nothing."""
    return abs(abs(amplitude) - 1) < 0.25


def name_tile(filters: KeyFilters, index: int) -> str:
    start = filters.tile_start + index * filters.tile
    what = _dropped_or_doubled(float(filters.tiles.amplitude[index]))
    return f"keys {start}..{start + filters.tile - 1} {what}"


def name_key(filters: KeyFilters, index: int, last: int) -> str:
    key = filters.first + index
    what = _dropped_or_doubled(float(filters.keys.amplitude[index]))
    newest = ": the newest visible key, a mask off by one" if key == last - 1 else ""
    return f"key {key} {what}{newest}"


def name_part(keys: tuple[int, int], index: int, parts: int, amplitude: float) -> str:
    what = _dropped_or_doubled(amplitude)
    return f"keys {keys[0]}..{keys[1] - 1} {what} (part {index} of {parts})"


def _dropped_or_doubled(amplitude: float) -> str:
    if not is_whole(amplitude):
        return f"strongest, at {amplitude:.3g} of the shift of leaving them out"
    return "dropped" if amplitude > 0 else "counted twice"


def _other_conventions(
    walk: Walk, arithmetic: Arithmetic, row: int, res: Residual, actual: Tensor
) -> list[Cause]:
    """Outputs under a rule other than the declared one, computed outright."""
    sums, scale = walk.values, walk.group.v_scale
    numerator = sums.total[row] + sums.drift[row]
    other = "unrounded" if arithmetic.mass == "rounded" else "rounded"
    total = walk.mass.other[row] + walk.sink[row]
    causes = [Cause(f"mass of the {other} probabilities, not as declared",
                    res.chi2(actual - numerator / total * scale))]  # fmt: skip
    if len(walk.parts) > 1:
        causes.append(Cause("parts merged with 2^(m_i - M) in place of e^(m_i - M)",
                            res.chi2(actual - _merged_in_base_2(walk, row) * scale)))  # fmt: skip
    return causes


def _merged_in_base_2(walk: Walk, row: int) -> Tensor:
    numerator, mass = torch.zeros_like(walk.values.total[row]), walk.sink[row].clone()
    for part in walk.parts:
        weight = torch.exp((part.m[row] - walk.m[row]) * math.log(2.0))
        numerator += weight * (part.values.total[row] + part.values.drift[row])
        mass += weight * part.mass.total[row]
    return numerator / mass.clamp_min(1e-300)
