"""How many tokens should flip for rounding of a given size, and how many did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import poisson

from verify.reference.layers.checks import Array, as_float64, check_count, check_number
from verify.reference.tokens import TokenShift

# A flip at a margin of more than this many sigma is no rounding: 1e-9 a position.
SURE_SIGMAS = 6.0


def flip_probability(margin: Any, sigma: Any) -> Array:
    """P(flip) = Phi(-g / sigma): a pairwise shift of deviation sigma exceeds the margin g.

    A tie flips with probability 1/2; with sigma 0 only ties can.
    """
    g, s = as_float64(margin, "margin"), as_float64(sigma, "sigma")
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(g == 0.0, 0.0, np.where(s > 0.0, g / s, np.inf))
    return np.asarray(ndtr(-scaled))


@dataclass(frozen=True, slots=True)
class FlipStatistics:
    """Observed flips against those that rounding of the measured size should cause.

    ``p_more`` and ``p_fewer`` are the Poisson chances of at least, and at most, the observed count
    when ``expected`` = sum Phi(-g / sigma). ``sure_flips`` lists flips at margins above 6 sigma:
    each is a lead to a defect. ``rate`` is the closed form f(0) sigma / sqrt(2 pi) for the share
    of positions that flip, f(0) the density of margins at 0.
    """

    positions: int
    observed: int
    expected: float
    sigma: float
    p_more: float
    p_fewer: float
    rate: float
    ties: int
    sure_flips: tuple[int, ...]
    first_flip: int | None


def flip_statistics(shift: TokenShift, *, sigma: float | None = None) -> FlipStatistics:
    """Count flips and say how many were due.

    Args:
        sigma: deviation of a pairwise shift; by default the rms over all positions. Give the value
            of a trusted pair (A/A, say) to test whether another pair has more than its noise: a
            defect widens the sigma that is measured on it.

    Raises:
        ArgumentError: a sigma that is negative or not finite.
    """
    spread = float(np.sqrt(np.mean(shift.sigma**2))) if sigma is None else sigma
    check_number("sigma", spread, least=0.0)
    margin, flipped = shift.a.margin, shift.flipped
    expected = float(flip_probability(margin, np.full(margin.shape, spread)).sum())
    observed = int(flipped.sum())
    sure = np.nonzero(flipped & (margin > SURE_SIGMAS * spread))[0]
    places = np.nonzero(flipped)[0]
    return FlipStatistics(
        positions=len(margin),
        observed=observed,
        expected=expected,
        sigma=spread,
        p_more=float(poisson.sf(observed - 1, expected)) if observed else 1.0,
        p_fewer=float(poisson.cdf(observed, expected)),
        rate=density_at_zero(margin) * spread / float(np.sqrt(2.0 * np.pi)),
        ties=int(shift.a.tie.sum()),
        sure_flips=tuple(int(place) for place in sure),
        first_flip=int(places[0]) if len(places) else None,
    )


def density_at_zero(margins: Any) -> float:
    """f(0) of non-negative margins, from the share below a low quantile (at least 20 margins).

    The window is the smallest fifth; a density that falls inside it makes the estimate low.
    """
    values = np.sort(as_float64(margins, "margins").ravel())
    count = min(len(values), max(20, len(values) // 5))
    width = float(values[count - 1])
    return count / len(values) / width if width > 0.0 else 0.0


def sigma_by_position(shift: TokenShift, window: int = 32) -> Array:
    """rms of the pairwise shift in consecutive windows of positions: [ceil(positions / window)].

    Rounding grows smoothly along a sequence; a defect that starts somewhere makes a step.
    """
    check_count("window", window)
    starts = np.arange(0, len(shift.sigma), window)
    counts = np.diff(np.append(starts, len(shift.sigma)))
    return np.sqrt(np.add.reduceat(shift.sigma**2, starts) / counts)
