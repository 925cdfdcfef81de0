"""The tests that a layer's output has to pass, one element at a time and many together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from verify.bounds import Bound
from verify.reference.certificates.evidence import Evidence, Projection, project
from verify.reference.certificates.result import Check, Outcome
from verify.reference.certificates.thresholds import (
    DEFECT_P,
    SUSPECT_P,
    Family,
    log10_p_of_z,
)
from verify.reference.layers.checks import Array
from verify.reference.layers.enclosure import NEAR_SIGMAS

# log10 of 2 (1 - Phi(9)): the chance that one element leaves the statistical enclosure.
_LOG10_P_FAR = -18.65


def element_checks(evidence: Evidence) -> list[Check]:
    """Every element on its own: non-finite, rigorous enclosure, statistical enclosure, and how
    many roundings fell the other way."""
    count = evidence.actual.size
    broken, outside = int(evidence.broken.sum()), int(evidence.outside.sum())
    far = int(evidence.far.sum())
    return [
        _none_of("non-finite elements", broken, "NaN and infinities come from the inputs alone"),
        _none_of(
            "impossible elements",
            outside,
            "correct arithmetic stays in the rigorous enclosure",
            _worst(evidence, evidence.budget_used, evidence.outside),
        ),
        Check(
            name="improbable elements",
            statistic=float(far),
            limit=Bound(0.0, f"{NEAR_SIGMAS:g} deviations of the rounding model hold everything"),
            passed=far == 0,
            detail=_worst(evidence, evidence.near_used, evidence.far),
            log10_p=min(0.0, _LOG10_P_FAR + float(np.log10(count))) if far else 0.0,
        ),
        _flip_check(evidence),
    ]


def _none_of(name: str, found: int, why: str, detail: str = "") -> Check:
    return Check(
        name=name, statistic=float(found), limit=Bound(0.0, why), passed=found == 0, detail=detail
    )


def _worst(evidence: Evidence, used: Array, where: NDArray[np.bool_]) -> str:
    if not where.any():
        return ""
    place = np.where(where, used, -1.0).argmax()
    row, column = np.unravel_index(place, used.shape)
    found, best = evidence.actual[row, column], evidence.held.mid[row, column]
    return (
        f"worst at row {row}, column {column}: {found:.9g} where {best:.9g} +- "
        f"{evidence.held.radius[row, column]:.3g} was due"
    )


def _flip_check(evidence: Evidence) -> Check:
    observed, expected = evidence.flips
    chance = float(poisson.logsf(observed - 1, max(expected, 1e-300))) / float(np.log(10.0))
    log10_p = min(0.0, chance if np.isfinite(chance) else -300.0) if observed else 0.0
    limit, severity = _poisson_limit(expected, observed)
    return Check(
        name="roundings that fell the other way",
        statistic=observed,
        limit=limit,
        passed=observed <= limit.value,
        detail=f"at most {expected:.3g} expected",
        if_broken=severity,
        log10_p=log10_p,
    )


def _poisson_limit(expected: float, observed: float) -> tuple[Bound, Outcome]:
    """The quantile for SUSPECT, or that for DEFECT where even it is passed."""

    def quantile(chance: float) -> Bound:
        value = float(poisson.isf(chance, expected)) if expected > 0.0 else 0.0
        return Bound(value, f"Poisson with mean {expected:.3g}, chance {chance:g}")

    severe = quantile(DEFECT_P)
    if observed > severe.value:
        return severe, Outcome.DEFECT
    return quantile(SUSPECT_P), Outcome.SUSPECT


def pattern_checks(evidence: Evidence, mistakes: Mapping[str, Projection]) -> Iterator[Check]:
    """What many elements show together: a gain of the whole, of a row, of a column, and the
    pattern of each mistake that may hide inside the rounding of single elements."""
    rows, columns = evidence.actual.shape
    family = family_of(evidence, mistakes)
    gain = evidence.held.mid
    yield _z_check("gain of the whole", project(evidence, gain), family)
    if rows > 1 and columns > 1:
        yield _z_check("gain of a row", project(evidence, gain, axis=1), family, "row")
        yield _z_check("gain of a column", project(evidence, gain, axis=0), family, "column")
    for name, seen in mistakes.items():
        check = _z_check(name, seen, family)
        # Present means present at about its own size. A residual of many times the pattern is
        # something else, and the other checks have it.
        about_itself = 0.5 <= float(seen.amplitude) <= 1.5
        yield check if about_itself else msgspec.structs.replace(check, passed=True)


def family_of(evidence: Evidence, mistakes: Mapping[str, Projection]) -> Family:
    """All patterns that one certificate looks for."""
    return Family(1 + sum(evidence.actual.shape) + len(mistakes))


def project_mistakes(evidence: Evidence, changed: Mapping[str, Array]) -> dict[str, Projection]:
    """The residual against what each mistake would change.

    Args:
        changed: name -> [rows, width], the output before its last rounding, had it been made.
    """
    seen = {}
    for name, values in changed.items():
        with np.errstate(invalid="ignore"):
            pattern = np.where(np.isfinite(values), values - evidence.held.mid, 0.0)
        seen[name] = project(evidence, pattern)
    return seen


def not_excluded(evidence: Evidence, mistakes: Mapping[str, Projection]) -> list[str]:
    """Mistakes that this output could not have shown: their whole pattern is below the limit."""
    limit = family_of(evidence, mistakes).z_limit(SUSPECT_P).value
    return [name for name, seen in mistakes.items() if float(seen.power) < limit]


def _z_check(name: str, seen: Projection, family: Family, axis: str = "") -> Check:
    place = int(np.abs(seen.z).argmax())
    z, amplitude = float(seen.z.flat[place]), float(seen.amplitude.flat[place])
    power = float(seen.power.flat[place])
    severe, mild = family.z_limit(DEFECT_P), family.z_limit(SUSPECT_P)
    limit, severity = (severe, Outcome.DEFECT) if abs(z) > severe.value else (mild, Outcome.SUSPECT)
    where = f"{axis} {place}, " if axis else ""
    return Check(
        name=name,
        statistic=abs(z),
        limit=limit,
        passed=abs(z) <= limit.value,
        detail=f"{where}{amplitude:+.3g} times the pattern, which alone would give z {power:.3g}",
        if_broken=severity,
        log10_p=log10_p_of_z(z, family.tests),
    )
