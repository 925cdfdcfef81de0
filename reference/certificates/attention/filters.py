"""C3: matched filters. Each asks whether the residual points where one particular fault would.

A fault shifts the output along a known direction c. With r the residual, S its covariance and
D = diag S, the statistic ``<c, r> / D`` has variance ``c D^-1 S D^-1 c``; its ratio z to that
deviation is sub-Gaussian for correct rounding, and ``<c, r>_D / <c, c>_D`` estimates how much of
the fault there is (1: exactly this fault).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.reference.attention.streaming import values
from verify.reference.certificates.attention.noise import Noise, scale_direction
from verify.reference.certificates.attention.walk import Walk

_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Residual:
    """One row's residual and its metric; only the counted elements matter.

    r: output - centre, [value_dim]. inverse: 1 / variance, 0 where not counted. correlation:
    [value_dim, value_dim]. slack: [value_dim].
    """

    r: Tensor
    inverse: Tensor
    correlation: Tensor
    slack: Tensor
    largest: float
    """Largest eigenvalue of the correlation matrix."""
    squares: float
    """Sum of its squared eigenvalues."""

    @property
    def elements(self) -> int:
        return int((self.inverse > 0).sum())

    @property
    def z(self) -> Tensor:
        """[value_dim]: residual beyond the slack, in standard deviations."""
        beyond = (self.r.abs() - self.slack).clamp_min(0.0).copysign(self.r)
        return beyond * self.inverse.sqrt()

    def chi2(self, r: Tensor | None = None) -> float:
        """Sum of squares of z, of the residual or of another one in its place."""
        if r is None:
            return float((self.z**2).sum())
        return float((((r.abs() - self.slack).clamp_min(0.0)) ** 2 * self.inverse).sum())


def residual(actual: Tensor, noise: Noise, row: int) -> Residual:
    """Residual of ``actual`` [value_dim] against row ``row`` of ``noise``."""
    sigma = noise.sigma[row]
    counted = noise.counted[row] & (sigma > 0)
    inverse = torch.where(counted, sigma**-2, 0.0)
    scaled = torch.where(counted, 1 / sigma, 0.0)
    correlation = noise.covariance[row] * scaled[:, None] * scaled
    eigenvalues = torch.linalg.eigvalsh(correlation)
    return Residual(actual - noise.centre[row], inverse, correlation, noise.slack[row],
                    max(1.0, float(eigenvalues[-1])), float((eigenvalues**2).sum()))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Filtered:
    """Filter results for several directions: z and amplitude, each [directions]."""

    z: Tensor
    amplitude: Tensor

    @property
    def strongest(self) -> int:
        return int(self.z.abs().argmax())


def filter_directions(res: Residual, c: Tensor, *, slack: Tensor | None = None) -> Filtered:
    """z of each direction c [directions, value_dim]; directions of no length give 0.

    The slack of the residual is taken off at its worst: ``sum |c| slack / D``.
    """
    weighted = c * res.inverse
    size = (c * weighted).sum(1)
    root = res.inverse.sqrt()
    scaled = c * root
    deviation = ((scaled @ res.correlation) * scaled).sum(1).clamp_min(0.0).sqrt()
    dot = weighted @ res.r
    allowed = weighted.abs() @ (res.slack if slack is None else slack)
    beyond = (dot.abs() - allowed).clamp_min(0.0).copysign(dot)
    some = size > 0
    return Filtered(
        torch.where(some, beyond / torch.where(some, deviation, 1.0), 0.0),
        torch.where(some, dot / torch.where(some, size, 1.0), 0.0),
    )


@dataclass(frozen=True, eq=False)
class KeyFilters:
    """Filters of one row over its keys; index 0 is key ``first``."""

    first: int
    keys: Filtered
    """Shift if a key is dropped; amplitude -1: taken twice."""
    tiles: Filtered
    """The same for each tile; tile t starts at key ``tile_start + t * tile``."""
    tile_start: int
    tile: int
    tile_directions: Tensor


def key_filters(walk: Walk, row: int, res: Residual, o: Tensor, tile: int) -> KeyFilters:
    """Filters of every visible key and tile of a row.

    Args:
        o: [value_dim], exact output of the row, without ``v_scale``; ``res`` includes it.
    """
    scale = walk.group.v_scale
    w = torch.exp(walk.x[row] - walk.m[row]) / walk.total[row]
    directions, start = _tile_directions(walk, w, o, tile)
    tiles = filter_directions(res, directions * scale)
    return KeyFilters(walk.first, _single_keys(walk, w, o, res), tiles, start, tile,
                      directions * scale)  # fmt: skip


def _tile_directions(walk: Walk, w: Tensor, o: Tensor, tile: int) -> tuple[Tensor, int]:
    """Shift of the output if a tile is dropped, [tiles, value_dim], and the first tile's key."""
    start = walk.first // tile * tile
    last = walk.first + len(w)
    parts = []
    for low in range(start, last, tile * (_CHUNK // tile or 1)):
        high = min(low + tile * (_CHUNK // tile or 1), last)
        a = max(low, walk.first)
        v, _ = values(walk.group, a, high)
        index = torch.arange(a, high, device=w.device) // tile - low // tile
        weights = w[a - walk.first : high - walk.first]
        count = -(-(high - low) // tile)
        sums = v.new_zeros(count, v.shape[1]).index_add_(0, index, v * weights[:, None])
        mass = w.new_zeros(count).index_add_(0, index, weights)
        parts.append((mass[:, None] * o - sums) / (1 - mass).clamp_min(2.0**-20)[:, None])
    return torch.cat(parts), start


def _single_keys(walk: Walk, w: Tensor, o: Tensor, res: Residual) -> Filtered:
    """The same for every key, without forming its direction: c_j = w_j (o - v_j) / (1 - w_j)."""
    scale, inverse = walk.group.v_scale, res.inverse
    size, dot, allowed = torch.zeros_like(w), torch.zeros_like(w), torch.zeros_like(w)
    for low in range(0, len(w), _CHUNK):
        high = min(low + _CHUNK, len(w))
        v, _ = values(walk.group, walk.first + low, walk.first + high)
        c = (o - v) * scale
        size[low:high] = (c * c) @ inverse
        dot[low:high] = c @ (inverse * res.r)
        allowed[low:high] = c.abs() @ (inverse * res.slack)
    beyond = (dot.abs() - allowed).clamp_min(0.0).copysign(dot)
    some = (size > 0) & (w > 0)
    safe = torch.where(some, size, 1.0)
    share = torch.where(some, w, 1.0) / (1 - w).clamp_min(2.0**-20)
    z = beyond / (safe * res.largest).sqrt()
    return Filtered(torch.where(some, z, 0.0), torch.where(some, dot / safe / share, 0.0))


def neighbour_directions(walk: Walk, row: int, o: Tensor) -> tuple[Tensor, list[int]]:
    """Shift if the first hidden key on either side is taken in: a mask off by one.

    Returns:
        [directions, value_dim] and the keys; none where the cache ends there.
    """
    group = walk.group
    low, high = int(group.first[row]), int(group.last[row])
    directions, keys = [], []
    for key in (low - 1, high):
        if not 0 <= key < group.k.shape[0] or high <= low:
            continue
        score = (group.q[row] @ group.k[key].double()) * group.scale
        if group.softcap is not None:
            score = torch.tanh(score / group.softcap) * group.softcap
        v, broken = values(group, key, key + 1)
        if broken is None and bool(torch.isfinite(score)):  # dead slots may hold anything
            w = torch.exp(score - walk.m[row]) / walk.total[row]
            directions.append(w / (1 + w) * (v[0] - o) * group.v_scale)
            keys.append(key)
    return (torch.stack(directions) if directions else o.new_zeros(0, len(o))), keys


def part_directions(walk: Walk, row: int, o: Tensor) -> Tensor:
    """Shift if a part is left out of the merge, [parts, value_dim]."""
    directions = []
    for part in walk.parts:
        weight = torch.exp(part.m[row] - walk.m[row]) / walk.total[row]
        mass = weight * part.mass.total[row]
        lost = mass * o - weight * part.values.total[row]
        directions.append(lost / (1 - mass).clamp_min(2.0**-20) * walk.group.v_scale)
    return torch.stack(directions)


def scale_shift(walk: Walk, o: Tensor) -> Tensor:
    """[rows, value_dim]: derivative of the output with respect to log(scale)."""
    return scale_direction(walk, o) * walk.group.v_scale
