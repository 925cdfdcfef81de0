"""The checks of one row, each with its limit from the number of tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.bounds import Bound
from verify.formats import get_format
from verify.reference.certificates.attention.causes import (
    Cause,
    best_cause,
    is_whole,
    linear_cause,
    name_key,
    name_part,
    name_tile,
)
from verify.reference.certificates.attention.filters import (
    Filtered,
    filter_directions,
    key_filters,
    neighbour_directions,
    part_directions,
    residual,
)
from verify.reference.certificates.attention.noise import Noise
from verify.reference.certificates.attention.walk import Walk
from verify.reference.certificates.result import Check, Outcome
from verify.reference.certificates.thresholds import (
    DEFECT_P,
    SUSPECT_P,
    Family,
    log10_p_of_chi2,
    log10_p_of_z,
)
from verify.reference.replay.arithmetic import Arithmetic

_LEFT_P = 1e-3  # a cause explains a residual if what is left is no rarer than this


def finite_check(actual: Tensor, exact: Tensor, budget: Tensor, output: str) -> Check:
    """Not finite exactly where the exact answer is not, or an infinity where it may overflow."""
    fmt = get_format(output)
    overflow = exact.abs() + budget >= fmt.max_finite
    wrong = torch.isfinite(actual) != torch.isfinite(exact)
    wrong &= ~(torch.isinf(actual) & overflow)
    count, places = int(wrong.sum()), wrong.nonzero().flatten().tolist()
    return Check(
        name="finite",
        statistic=float(count),
        limit=Bound(0.0, "no NaN or infinity that the exact answer lacks, or the other way round"),
        passed=count == 0,
        detail=f"elements {places[:8]}" if count else "",
    )


def bound_check(actual: Tensor, exact: Tensor, budget: Tensor) -> Check:
    """C2: |output - exact| within B_d, as a share of it."""
    share = ((actual - exact).abs() / budget).nan_to_num(0.0)
    where = int(share.argmax())
    return Check(
        name="running bound (C2)",
        statistic=float(share[where]),
        limit=Bound(1.0, "|output - exact| as a share of the running bound B_d"),
        passed=bool(share[where] <= 1.0),
        detail=f"element {where}: off by {float((actual - exact)[where]):.3g}, "
        f"B_d {float(budget[where]):.3g}",
    )


def statistic_check(
    name: str, value: float, log10_p: float, limits: tuple[Bound, Bound], detail: str
) -> Check:
    """Broken beyond the limit of a suspicion; a defect only beyond the second limit."""
    suspect, defect = limits
    severe = value > defect.value
    limit = defect if severe else suspect
    return Check(
        name=name,
        statistic=value,
        limit=limit,
        passed=value <= suspect.value,
        detail=detail,
        if_broken=Outcome.DEFECT if severe else Outcome.SUSPECT,
        log10_p=log10_p,
    )


@dataclass(frozen=True, eq=False)
class RowChecks:
    """Checks of one row with the numbers they rest on and, of a failure, the likely cause."""

    checks: list[Check]
    numbers: dict[str, float]
    reasons: list[str]


class RowJudge:
    """All statistical checks (C3) of one row."""

    def __init__(
        self, walk: Walk, noise: Noise, arithmetic: Arithmetic, row: int, exact: Tensor,
        actual: Tensor, scale_direction: Tensor,
    ) -> None:  # fmt: skip
        self.walk, self.noise, self.rule, self.row = walk, noise, arithmetic, row
        self.o, self.actual = exact / walk.group.v_scale, actual
        self.exact, self.scale_direction = exact, scale_direction[row]
        self.res = residual(actual, noise, row)
        self.keys = key_filters(walk, row, self.res, self.o, arithmetic.tile)
        self.neighbours, self.neighbour_keys = neighbour_directions(walk, row, self.o)
        self.parts = part_directions(walk, row, self.o)
        self.causes: dict[str, Cause] = {}

    @property
    def tests(self) -> int:
        """Statistics compared with a limit in this row."""
        parts = len(self.parts) if len(self.walk.parts) > 1 else 0
        visible = int((~torch.isneginf(self.walk.x[self.row])).sum())
        return (3 + self.res.elements + visible + len(self.keys.tiles.z)
                + len(self.neighbour_keys) + parts)  # fmt: skip

    def judge(self, tests: int) -> RowChecks:
        """Checks with limits for ``tests`` statistics in all."""
        family = Family(tests)
        z_limits = (family.z_limit(SUSPECT_P), family.z_limit(DEFECT_P))
        checks = [self._chi2(family), self._largest(z_limits, tests)]
        checks += [
            statistic_check(name, abs(z), log10_p_of_z(z, tests), z_limits, detail)
            for name, z, detail in self._filters()
        ]
        broken = any(not check.passed for check in checks)
        return RowChecks(checks, self._numbers(), [self._reason()] if broken else [])

    def _reason(self) -> str:
        res = self.res
        limit = (
            Family(1)
            .chi2_limit(res.elements, squares=res.squares, largest=res.largest, chance=_LEFT_P)
            .value
        )
        cause = best_cause(self.walk, self.rule, self.row, res, self.causes, self.actual, limit)
        if cause is None:
            return "no single tile, key, part, scale or convention explains it"
        return cause.sentence(res.chi2(), limit)

    def _chi2(self, family: Family) -> Check:
        res = self.res
        value, n = res.chi2(), res.elements
        options = {"squares": res.squares, "largest": res.largest}
        limits = (
            family.chi2_limit(n, chance=SUSPECT_P, **options),
            family.chi2_limit(n, chance=DEFECT_P, **options),
        )
        p = log10_p_of_chi2(value, n, family.tests, **options)
        detail = f"{value / max(1, n):.3g} per element over {n}"
        return statistic_check("chi-square", value, p, limits, detail)

    def _largest(self, limits: tuple[Bound, Bound], tests: int) -> Check:
        z = self.res.z
        where = int(z.abs().argmax())
        value = float(z[where].abs())
        return statistic_check(
            "largest |z|", value, log10_p_of_z(value, tests), limits, f"element {where}"
        )

    def _filters(self) -> list[tuple[str, float, str]]:
        """(name, z, what it points to); records each candidate cause."""
        rows = [self._drift(), self._scale(), self._tile(), self._key()]
        if self.neighbour_keys:
            rows.append(self._neighbour())
        if len(self.walk.parts) > 1:
            rows.append(self._part())
        return rows

    def _one(self, direction: Tensor) -> tuple[float, float]:
        found = filter_directions(self.res, direction[None])
        return float(found.z[0]), float(found.amplitude[0])

    def _drift(self) -> tuple[str, float, str]:
        direction = self.noise.centre[self.row]
        z, size = self._one(direction)
        text = f"output too {'large' if size > 0 else 'small'} by {abs(size):.3g} of itself"
        self.causes["drift"] = linear_cause(text, self.res, direction, size)
        return "signed drift", z, text

    def _scale(self) -> tuple[str, float, str]:
        z, size = self._one(self.scale_direction)
        text = f"softmax scale off by a factor of {1 + size:.6g}"
        self.causes["scale"] = linear_cause(text, self.res, self.scale_direction, size)
        return "softmax scale", z, text

    def _tile(self) -> tuple[str, float, str]:
        tiles = self.keys.tiles
        index = tiles.strongest
        text = name_tile(self.keys, index)
        direction = self.keys.tile_directions[index]
        if is_whole(size := float(tiles.amplitude[index])):
            self.causes["tile"] = linear_cause(text, self.res, direction, size)
        return "tile filter", float(tiles.z[index]), text

    def _key(self) -> tuple[str, float, str]:
        keys = self.keys.keys
        index = keys.strongest
        text = name_key(self.keys, index, int(self.walk.group.last[self.row]))
        if is_whole(size := float(keys.amplitude[index])):
            self.causes["key"] = linear_cause(text, self.res, self._key_direction(index), size)
        return "key filter", float(keys.z[index]), text

    def _key_direction(self, index: int) -> Tensor:
        walk = self.walk
        w = torch.exp(walk.x[self.row, index] - walk.m[self.row]) / walk.total[self.row]
        v = walk.group.v[walk.first + index].double()
        return w / (1 - w).clamp_min(2.0**-20) * (self.o - v) * walk.group.v_scale

    def _neighbour(self) -> tuple[str, float, str]:
        found = filter_directions(self.res, self.neighbours)
        text = f"hidden key {self.neighbour_keys[found.strongest]} taken in: a mask off by one"
        return self._strongest("mask edge", found, self.neighbours, text)

    def _part(self) -> tuple[str, float, str]:
        found = filter_directions(self.res, self.parts)
        index = found.strongest
        keys = self.walk.parts[index].keys
        text = name_part(keys, index, len(self.parts), float(found.amplitude[index]))
        return self._strongest("part filter", found, self.parts, text)

    def _strongest(
        self, name: str, found: Filtered, directions: Tensor, text: str
    ) -> tuple[str, float, str]:
        index = found.strongest
        size = float(found.amplitude[index])
        self.causes[name] = linear_cause(text, self.res, directions[index], size)
        return name, float(found.z[index]), text

    def _numbers(self) -> dict[str, float]:
        res, noise, row = self.res, self.noise, self.row
        size = float(self.exact.norm())
        fmt = get_format(self.rule.output)
        unit = 2.0 ** -(fmt.mantissa_bits + 1)
        relative = 1.0 / max(size, 1e-300)
        return {
            "error": float((self.actual - self.exact).norm()) * relative,
            "expected_error": float(noise.covariance[row].diagonal().sum().sqrt()) * relative,
            "chi2_per_element": res.chi2() / max(1, res.elements),
            "drift_modelled": float((noise.drift[row] * self.exact.sign()).sum())
            / max(float(self.exact.abs().sum()), 1e-300) / unit,
            "correlated": res.largest,
            "tied_keys": float(noise.ties[row]),
        }  # fmt: skip
