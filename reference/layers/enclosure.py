"""What declared arithmetic can have made of an exact computation.

An enclosure carries one FP64 value per element, with every *declared* rounding applied, and
around it three descriptions of the rounding that is not declared bit by bit (the order of a sum,
the last bits of an exponential):

* ``lo .. hi``: rigorous. Correct arithmetic cannot leave it.
* ``near_lo .. near_hi``: NEAR_SIGMAS standard deviations of the rounding model of
  docs/numerics.md, never wider than the rigorous one.
* ``noise``: the moments that the statistics over many elements need.

Two intervals and not one, because the rigorous one of a long sum is 10 to 1000 times its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verify.reference.layers.grid import round_to, spacing, tie_distance

Array = NDArray[np.float64]

# 2 * (1 - Phi(9)) = 2.3e-19: over 4e9 elements a family-wise 1e-9.
NEAR_SIGMAS = 9.0
# rms of one round-to-nearest error relative to the value, in units of the largest (2^-precision):
# uniform within half a spacing, sqrt(1/3), times sqrt(E[1/s^2]) = 0.7355 for a significand s that
# is log-uniform on [1, 2).
RMS_OF_ROUNDING = 0.425
# FP64 evaluates a handful of operations per element with 2^-53 each; 2^-48 covers 32 of them.
FP64_SLACK = 2.0**-48
# E|x| of a normal variable of standard deviation 1.
MEAN_ABS_OF_NORMAL = 0.7979


def _zero() -> Array:
    return np.zeros(())


@dataclass(frozen=True, slots=True)
class Noise:
    """Moments of (computed - mid), per element or broadcastable to that.

    ``mean_abs`` and ``rms`` belong to the part that is independent between elements, ``common``
    is the standard deviation of the part that all elements of a row share (a rounded reciprocal
    root, say), and ``drift`` bounds what may have one sign everywhere (truncation, the bias of an
    approximate function) and so never averages out.
    """

    mean_abs: Array = field(default_factory=_zero)
    rms: Array = field(default_factory=_zero)
    common: Array = field(default_factory=_zero)
    drift: Array = field(default_factory=_zero)

    def scaled(self, factor: Array) -> Noise:
        """The noise after multiplication by an exact factor."""
        size = np.abs(factor)
        with np.errstate(invalid="ignore"):
            return Noise(
                self.mean_abs * size, self.rms * size, self.common * size, self.drift * size
            )

    def joined(self, other: Noise) -> Noise:
        """The noise of a sum."""
        return Noise(
            self.mean_abs + other.mean_abs,
            np.hypot(self.rms, other.rms),
            np.hypot(self.common, other.common),
            self.drift + other.drift,
        )

    @property
    def expected_size(self) -> Array:
        """E|computed - mid|, an upper estimate."""
        return self.mean_abs + MEAN_ABS_OF_NORMAL * self.common + self.drift


@dataclass(frozen=True, slots=True)
class Enclosure:
    """See the module text. All arrays have one shape; ``noise`` broadcasts to it."""

    mid: Array
    lo: Array
    hi: Array
    near_lo: Array
    near_hi: Array
    noise: Noise = field(default_factory=Noise)

    @classmethod
    def exactly(cls, values: Array) -> Enclosure:
        """Values that the kernel holds bit for bit, such as its inputs."""
        return cls(values, values, values, values, values)

    @classmethod
    def around(cls, mid: Array, radius: Array, near: Array, noise: Noise) -> Enclosure:
        """``mid`` +- ``radius`` rigorously, +- ``near`` by the rounding model."""
        near = np.minimum(near, radius)
        return cls(mid, mid - radius, mid + radius, mid - near, mid + near, noise)

    @property
    def radius(self) -> Array:
        """Largest rigorous distance from ``mid``."""
        return np.maximum(self.hi - self.mid, self.mid - self.lo)

    @property
    def near_radius(self) -> Array:
        return np.maximum(self.near_hi - self.mid, self.mid - self.near_lo)

    def _ends(self, f: Callable[[Array], Array], noise: Noise) -> Enclosure:
        """A monotone function, of either direction, of every end."""
        with np.errstate(all="ignore"):
            mid, lo, hi = f(self.mid), f(self.lo), f(self.hi)
            near_lo, near_hi = f(self.near_lo), f(self.near_hi)
        return Enclosure(
            mid,
            np.minimum(lo, hi),
            np.maximum(lo, hi),
            np.minimum(near_lo, near_hi),
            np.maximum(near_lo, near_hi),
            noise,
        )

    def scaled(self, factor: Array | float) -> Enclosure:
        """Times an exact factor, without rounding."""
        exact = np.asarray(factor, dtype=np.float64)
        return self._ends(lambda end: end * exact, self.noise.scaled(exact))

    def shifted(self, offset: Array | float) -> Enclosure:
        """Plus an exact number, without rounding."""
        exact = np.asarray(offset, dtype=np.float64)
        return self._ends(lambda end: end + exact, self.noise)

    def mapped(self, f: Callable[[Array], Array], slope: Array) -> Enclosure:
        """A monotone function; ``slope`` is its derivative at ``mid``, for the noise."""
        return self._ends(f, self.noise.scaled(slope))

    def plus(self, other: Enclosure) -> Enclosure:
        """Sum with another enclosure, without rounding."""
        return Enclosure(
            self.mid + other.mid,
            self.lo + other.lo,
            self.hi + other.hi,
            self.near_lo + other.near_lo,
            self.near_hi + other.near_hi,
            self.noise.joined(other.noise),
        )

    def times(self, other: Enclosure) -> Enclosure:
        """Product with another enclosure, without rounding."""
        lo, hi = _product(self.lo, self.hi, other.lo, other.hi)
        near_lo, near_hi = _product(self.near_lo, self.near_hi, other.near_lo, other.near_hi)
        noise = self.noise.scaled(other.mid).joined(other.noise.scaled(self.mid))
        with np.errstate(invalid="ignore", over="ignore"):
            return Enclosure(self.mid * other.mid, lo, hi, near_lo, near_hi, noise)

    def widened(self, relative: float, absolute: Array | float = 0.0) -> Enclosure:
        """Room for an error of at most ``relative * |value| + absolute`` that may be systematic,
        as that of an approximate function."""
        drift = Noise(drift=relative * np.abs(self.mid) + absolute)
        return self._wider(relative, np.asarray(absolute), self.noise.joined(drift))

    def computed(self, unit: float, operations: int = 1) -> Enclosure:
        """Room for ``operations`` correctly rounded working-precision operations, the last of
        which gave this value. What is exact in working precision needs none."""
        size = np.abs(self.mid) * unit
        exact = (self.lo == self.hi) & _has_bits(self.mid, unit) if operations == 1 else None
        noise = self.noise.joined(
            Noise(mean_abs=0.5 * operations * size, rms=RMS_OF_ROUNDING * operations**0.5 * size)
        )
        wider = self._wider(operations * unit * (1 + unit), np.asarray(0.0), noise)
        return wider if exact is None else wider._kept_where(exact, self)

    def _wider(self, relative: float, absolute: Array, noise: Noise) -> Enclosure:
        share = relative + FP64_SLACK
        with np.errstate(invalid="ignore"):
            return Enclosure(
                self.mid,
                self.lo - share * np.abs(self.lo) - absolute,
                self.hi + share * np.abs(self.hi) + absolute,
                self.near_lo - share * np.abs(self.near_lo) - absolute,
                self.near_hi + share * np.abs(self.near_hi) + absolute,
                noise,
            )

    def _kept_where(self, keep: NDArray[np.bool_], old: Enclosure) -> Enclosure:
        def pick(new: Array, before: Array) -> Array:
            return np.where(keep, before, new)

        noise = Noise(
            pick(self.noise.mean_abs, old.noise.mean_abs),
            pick(self.noise.rms, old.noise.rms),
            pick(self.noise.common, old.noise.common),
            pick(self.noise.drift, old.noise.drift),
        )
        return Enclosure(
            self.mid,
            pick(self.lo, old.lo),
            pick(self.hi, old.hi),
            pick(self.near_lo, old.near_lo),
            pick(self.near_hi, old.near_hi),
            noise,
        )

    def stored(self, fmt: str) -> Enclosure:
        """Rounded to a storage format, a *declared* rounding: replayed, not bounded.

        Rounding is monotone, so the ends round too. An error below one spacing either vanishes or
        becomes a whole spacing: its mean size stays, its rms grows to sqrt(spacing * mean size).
        A value that is known to lie next to a tie can only fall one way, and goes into the drift.
        """
        if fmt == "float64":
            return self
        step, size = spacing(self.mid, fmt), self.noise.expected_size
        noise = Noise(
            self.noise.mean_abs,
            np.sqrt(self.noise.rms**2 + step * size),
            self.noise.common,
            self.noise.drift + _one_sided(self.mid, step, size, fmt),
        )
        return self._ends(lambda end: round_to(end, fmt), noise)


def _one_sided(mid: Array, step: Array, size: Array, fmt: str) -> Array:
    """A whole spacing where a small error decides to which side of a tie a value falls."""
    with np.errstate(invalid="ignore"):
        undecided = (tie_distance(mid, fmt) < 3.0 * size) & (size < step / 4.0)
    return np.where(undecided, step, 0.0)


def _product(a_lo: Array, a_hi: Array, b_lo: Array, b_hi: Array) -> tuple[Array, Array]:
    with np.errstate(invalid="ignore", over="ignore"):
        corners = (a_lo * b_lo, a_lo * b_hi, a_hi * b_lo, a_hi * b_hi)
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = np.minimum(low, corner), np.maximum(high, corner)
    return low, high


def _has_bits(values: Array, unit: float) -> NDArray[np.bool_]:
    """True where a value fits in a significand of ``1 / unit`` steps, as float32 has 2^24."""
    mantissa = np.frexp(values)[0] / unit
    with np.errstate(invalid="ignore"):
        fits: NDArray[np.bool_] = mantissa == np.rint(mantissa)
    return fits
