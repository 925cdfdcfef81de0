"""What a number of trials can say about a rate."""

from __future__ import annotations

CONFIDENCE = 0.95


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact interval of a binomial rate (Clopper and Pearson, Biometrika 26, 1934).

    Args:
        hits: successes in ``trials``.

    Returns:
        Lower and upper end; (0, 1) without trials.
    """
    from scipy.stats import beta

    if trials == 0:
        return 0.0, 1.0
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1.0 - tail, hits + 1, trials - hits))
    return low, high


def rule_of_three(trials: int, confidence: float = CONFIDENCE) -> float:
    """Upper bound of a rate of which no case was seen: ``1 - (1 - confidence)^(1/n)``, about 3/n
    (Hanley and Lippman-Hand, JAMA 249, 1983); 1 without trials."""
    return float(1.0 - (1.0 - confidence) ** (1.0 / trials)) if trials else 1.0
