"""What an output shows against the enclosure of a layer: the numbers that a verdict rests on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import Array, distance_to_cell, round_to, spacing, tie_distance


@dataclass(frozen=True)
class Evidence:
    """An output beside what its declared arithmetic can have produced.

    Args:
        actual: [rows, width] float64, the output, on the grid of ``store``.
        exact: [rows, width] float64, the layer without any rounding.
        held: what the kernel can hold before its last rounding, same shape.
        store: storage format of the output.
    """

    actual: Array
    exact: Array
    held: Enclosure
    store: str

    @cached_property
    def ulps(self) -> Array:
        """The spacing of ``store`` at each replayed value."""
        return spacing(self.held.mid, self.store)

    @cached_property
    def residual(self) -> Array:
        """Output minus the replayed output; 0 where either is not finite."""
        with np.errstate(invalid="ignore"):
            difference = self.actual - round_to(self.held.mid, self.store)
        return np.where(np.isfinite(difference), difference, 0.0)

    @cached_property
    def broken(self) -> NDArray[np.bool_]:
        """NaN on one side only, or an infinity that the enclosure does not admit."""
        expects_nan = np.isnan(self.held.mid)
        unbounded = np.isnan(self.held.lo) | np.isnan(self.held.hi)
        missing: NDArray[np.bool_] = expects_nan & ~np.isnan(self.actual)
        unasked = np.isnan(self.actual) & ~expects_nan & ~unbounded
        infinite = np.isinf(self.actual) & ~unbounded
        return missing | unasked | (infinite & self._outside(self.held.lo, self.held.hi))

    @cached_property
    def outside(self) -> NDArray[np.bool_]:
        """Elements that correct arithmetic cannot have produced."""
        return self.broken | self._outside(self.held.lo, self.held.hi)

    @cached_property
    def far(self) -> NDArray[np.bool_]:
        """Elements beyond NEAR_SIGMAS standard deviations of the rounding model."""
        return self.broken | self._outside(self.held.near_lo, self.held.near_hi)

    def _outside(self, lo: Array, hi: Array) -> NDArray[np.bool_]:
        """The output rounds from ``[lo, hi]`` exactly if it lies between their roundings."""
        with np.errstate(invalid="ignore"):
            below = self.actual < round_to(lo, self.store)
            above = self.actual > round_to(hi, self.store)
        return np.asarray(below | above)

    @cached_property
    def budget_used(self) -> Array:
        """Error needed before the last rounding, as a share of the rigorous bound; inf where the
        bound is 0 and an error is needed."""
        return self._share(self.held.radius)

    @cached_property
    def near_used(self) -> Array:
        """The same share of the statistical bound of NEAR_SIGMAS deviations."""
        return self._share(self.held.near_radius)

    def _share(self, radius: Array) -> Array:
        needed = np.abs(distance_to_cell(self.held.mid, self.actual, self.store))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(needed == 0.0, 0.0, needed / radius)
        return np.where(np.isnan(share), np.where(self.broken, np.inf, 0.0), share)

    @cached_property
    def edge(self) -> Array:
        """Distance from each replayed value, before its last rounding, to the nearest value that
        rounds differently."""
        return tie_distance(self.held.mid, self.store)

    @cached_property
    def flip_chance(self) -> Array:
        """An upper estimate of the chance that each output differs from the replayed one.

        An error of mean size m before rounding on a grid of spacing s crosses an edge with chance
        m/s where edges fall anywhere; that also covers rare whole spacings of an intermediate
        rounding. Where the edge is known to be near (products of short significands tie often) it
        is the tail of a normal law of deviation m/0.8 beyond the edge, whatever the direction.
        """
        noise = self.held.noise
        # Shared errors do not average out: allow 7 deviations of them, not their mean size.
        size = noise.mean_abs + 7.0 * noise.common + noise.drift
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            anywhere = np.nan_to_num(size / self.ulps, nan=1.0)
            near = np.exp(-0.5 * np.nan_to_num(0.8 * self.edge / size, nan=np.inf) ** 2)
        chance = np.minimum(np.maximum(anywhere, near), 1.0)
        return np.where(size > 0.0, chance, 0.0)

    @cached_property
    def flips(self) -> tuple[float, float]:
        """Outputs that differ from the replayed ones, and how many should at most."""
        return float((self.residual != 0.0).sum()), float(self.flip_chance.sum())

    @cached_property
    def informative(self) -> NDArray[np.bool_]:
        """Elements whose residual has mean zero under correct rounding.

        Close to an edge a residual can only go one way, so it says nothing about a gain; that
        matters where errors are small against the spacing.
        """
        size = np.broadcast_to(self.held.noise.expected_size, self.actual.shape)
        with np.errstate(invalid="ignore"):
            far: NDArray[np.bool_] = (self.edge > 3.0 * size) | (size > self.ulps / 4.0)
        return far

    @cached_property
    def error(self) -> float:
        """||output - exact|| / ||exact|| over elements where both are finite."""
        return relative_l2(self.actual, self.exact)

    @cached_property
    def floor(self) -> float:
        """The error of rounding the exact result: what no kernel with this output format avoids."""
        return relative_l2(round_to(self.exact, self.store), self.exact)

    @cached_property
    def variance(self) -> Array:
        """Variance of each residual, apart from what a row shares: the error before the last
        rounding, and whole spacings that rounding makes of small errors. Floored at 2^-40 of a
        spacing squared, so that what is known exactly does not get an infinite weight."""
        noise = self.held.noise
        size = noise.rms**2 + self.ulps * noise.expected_size
        return np.maximum(np.broadcast_to(size, self.actual.shape), 2.0**-40 * self.ulps**2)


def relative_l2(values: Array, exact: Array) -> float:
    """``||values - exact|| / ||exact||``, elements that are not finite left out; inf where the
    exact result is zero and the values are not."""
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(values) & np.isfinite(exact)
        off = np.where(finite, values - exact, 0.0)
    scale, distance = np.linalg.norm(np.where(finite, exact, 0.0)), np.linalg.norm(off)
    if scale == 0.0:
        return 0.0 if distance == 0.0 else float("inf")
    return float(distance / scale)


@dataclass(frozen=True, slots=True)
class Projection:
    """How much of a pattern the residual holds: one entry for the whole, each row or column.

    ``amplitude`` is the least-squares multiple of the pattern, ``z`` its significance, ``power``
    the z that the pattern itself would have: below the limit it could not have been seen.
    """

    amplitude: Array
    z: Array
    power: Array


def project(evidence: Evidence, pattern: Array, axis: int | None = None) -> Projection:
    """Matched filter of the residual with a pattern.

    S = sum c r with weights c = pattern / variance. Its variance counts what a row shares once
    for the row and not once for each element; what may have one sign everywhere (drift) is taken
    off |S|. Residuals are mostly 0 and now and then a whole spacing, so the tail is Bernstein's
    and not Gauss's: P(S > s) <= exp(-s^2 / 2(V + J s / 3)), J the largest single contribution;
    z = s / sqrt(V + J s / 3) then has the tail exp(-z^2 / 2).

    Args:
        pattern: [rows, width], in units of the output.
        axis: sum over everything (None), over the columns of each row (1), or over the rows (0).
    """
    noise, variance = evidence.held.noise, evidence.variance
    shape = evidence.actual.shape
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.nan_to_num(pattern / variance, nan=0.0, posinf=0.0, neginf=0.0)
        weights = np.where(evidence.informative, weights, 0.0)
        size = np.abs(weights)
        score = (weights * evidence.residual).sum(axis=axis)
        drift = (size * np.nan_to_num(np.broadcast_to(noise.drift, shape))).sum(axis=axis)
        shared = np.nan_to_num(size * np.broadcast_to(noise.common, shape))
        spread = _sum_of_rows(weights**2 * variance, shared, axis)
        reach = np.nan_to_num(evidence.held.near_radius, posinf=0.0) + evidence.ulps
        jump = (size * reach).max(axis=axis)
        gain = (weights * np.nan_to_num(pattern)).sum(axis=axis)
        amplitude = np.where(gain > 0.0, score / gain, 0.0)
        excess = np.maximum(np.abs(score) - drift, 0.0)
        z = np.sign(score) * _bernstein(excess, spread, jump)
        power = _bernstein(np.maximum(gain - drift, 0.0), spread, jump)
    return Projection(np.asarray(amplitude), np.asarray(z), np.asarray(power))


def _sum_of_rows(independent: Array, shared: Array, axis: int | None) -> Array:
    """Variance of a weighted sum whose rows share part of their noise."""
    if axis == 0:
        total: Array = (independent + shared**2).sum(axis=0)
    elif axis == 1:
        total = independent.sum(axis=1) + shared.sum(axis=1) ** 2
    else:
        total = np.asarray(independent.sum() + (shared.sum(axis=1) ** 2).sum())
    return total


def _bernstein(excess: Array, spread: Array, jump: Array) -> Array:
    below = spread + jump * excess / 3.0
    return np.where(below > 0.0, excess / np.sqrt(np.where(below > 0.0, below, 1.0)), 0.0)
