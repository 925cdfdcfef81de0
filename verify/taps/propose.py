"""A tap map from two runs: names, shapes, order, and the values of the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from verify.dumps.format import Dump
from verify.errors import NotComparableError
from verify.taps.candidates import SHIFTS, Candidate, find_candidates, find_sums
from verify.taps.choose import Choice, choose
from verify.taps.evidence import line_of
from verify.taps.families import Family, families
from verify.taps.fits import FAR, HEAD_DIMS, NEAR, Fitter, is_telling
from verify.taps.joined import find_joined
from verify.taps.patterns import match
from verify.taps.proposal import Line, Proposal
from verify.taps.repeating import alone_lines, find_repeating
from verify.taps.same import SameTensors
from verify.taps.sampling import Side, Tap, shared_rows
from verify.taps.sizes import sizes_of
from verify.taps.spelling import Speller, shifted
from verify.taps.types import TapMap
from verify.taps.unfit import by_shape
from verify.taps.weights import open_weights as find_open_weights
from verify.taps.weights import propose_weights

_GROWTH = 4.0
"""By how much a distance may grow from one tap to another: softmax and gates amplify."""


def propose(a: Dump, b: Dump, name: str = "proposed") -> Proposal:
    """Find for every tap of A the tap or taps of B that hold the same numbers.

    Args:
        name: of the map.

    Raises:
        NotComparableError: the runs share no row.
        CorruptDumpError: words or rows are not those that were stored.
    """
    sequences: dict[str, int] = {}
    side_a, side_b = Side(a, sequences), Side(b, sequences)
    keys = shared_rows(side_a, side_b)
    if not keys:
        raise NotComparableError(
            "the runs have no row in common",
            where=f"{a.path} and {b.path}",
            hint="a map is proposed from the same tokens: capture both runs with the same prompts "
            "and sequence names",
        )
    sizes = sizes_of([a.manifest.model.config, b.manifest.model.config])
    dims = [sizes["head_dim"]] if "head_dim" in sizes else HEAD_DIMS
    fitter = Fitter(side_a, side_b, keys, dims)
    return _Proposer(a, b, side_a, side_b, fitter, Speller(sizes)).run(name)


class _Proposer:
    def __init__(
        self, a: Dump, b: Dump, side_a: Side, side_b: Side, fitter: Fitter, speller: Speller
    ) -> None:
        self.a, self.b, self.fitter, self.speller = a, b, fitter, speller
        self.side_a, self.side_b = side_a, side_b
        self.reverse = fitter.swapped()
        self.families_b = families(side_b.taps)
        self.singles_b = _one_by_one(self.families_b)
        self.lines: list[Line] = []
        self.used: set[str] = set()
        self.covered: set[str] = set()
        self.apart: list[tuple[int, float]] = []
        """Place in A's order and distance of what was looked at: how far apart the runs are where."""
        self.fitting: dict[str, str] = {}
        """Tap of B -> the tap of A that it fits as well as the one that was chosen."""

    def run(self, name: str) -> Proposal:
        wanted = [f for f in families(self.side_a.taps) if f.place != "last"]
        for singles in (False, True):
            self._take([
                [c for c in self._candidates(family, singles, NEAR) if c.is_as_rounding()]
                for family in self._left(wanted)
            ])  # fmt: skip
        for limit in (NEAR, FAR):  # of what no line uses, and only where the runs are apart already
            for singles in (False, True):
                offered = self._unused()
                self._take([
                    [c for c in self._candidates(family, singles, limit, offered)
                     if self._is_expected(c)]
                    for family in self._left(wanted)
                ])  # fmt: skip
        for choice in by_shape(self._left(wanted), self._unused(), self.covered):
            self._add(choice)
        return self._proposal(name)

    def _candidates(
        self,
        family: Family,
        singles: bool,
        limit: float,
        offered: Sequence[Family] | None = None,
    ) -> list[Candidate]:
        """What may be a family of A; sums too, unless some tap alone explains it in all layers.

        Args:
            singles: offer the taps of B one by one.
            offered: only these.
        """
        if not self._tells(family):
            return []
        if offered is None:
            offered = self.singles_b if singles else self.families_b
        elif singles:
            offered = _one_by_one(offered)
        limit = limit if family.any.is_float else 0.0
        found = find_candidates(family, offered, self.fitter, limit)
        if not family.any.is_float or any(
            c.fits_everywhere() and 2 * len(c.pairs()) > len(family.members) for c in found
        ):
            return found
        parts = self._in_layer(family, offered) if singles else offered
        joined = find_joined(family, parts, self.fitter, self.reverse)
        return [*found, *joined, *find_sums(family, parts, self.fitter, limit)]

    def _is_expected(self, candidate: Candidate) -> bool:
        """Whether the runs were as far apart before, in most layers: differences pass on, and do not
        come from nowhere. What is suddenly further away is a fault or another tensor; neither is
        proposed."""
        expected = 0
        for number, fit in candidate.fits.items():
            order = candidate.a.members[number].order
            before = max((d for place, d in self.apart if place < order), default=0.0)
            expected += fit.distance <= _GROWTH * before
        return 2 * expected > len(candidate.fits)

    def _in_layer(self, family: Family, offered: Sequence[Family]) -> list[Family]:
        """Taps of B that may be parts of a sum in one layer: those of layers with its number."""
        number = family.any.number
        return [f for f in offered if number is None or f.any.number == number]

    def _tells(self, family: Family) -> bool:
        """Whether some values of a family are of more than a few kinds."""
        tap = family.any
        if tap.kept != "full" or not tap.is_float:
            return True
        return is_telling(self.fitter.of_a(tap, self.fitter.rows(tap)))

    def _take(self, found: list[list[Candidate]]) -> None:
        for choice in choose([some for some in found if some], self.fitter):
            self._add(choice)

    def _add(self, choice: Choice) -> None:
        line = line_of(choice, self.speller)
        self.lines.append(line)
        for number, fit in choice.candidate.fits.items():
            self.apart.append((choice.candidate.a.members[number].order, fit.distance))
        pairs = choice.candidate.pairs()
        self.covered |= {tap.name for tap, _ in pairs}
        self.used |= {tap.name for _, taps in pairs for tap in taps}
        if choice.alike == 1:  # all others that fit hold the same rows
            for other in choice.close:
                if len(other.sources) == 1:
                    names = {
                        t.name: choice.candidate.a.template for _, b in other.pairs() for t in b
                    }
                    self.fitting = {**names, **self.fitting}

    def _left(self, wanted: list[Family]) -> list[Family]:
        """Members that no line presents, each on its own unless all of a family are left."""
        found = []
        for family in wanted:
            left = [n for n, tap in family.members.items() if tap.name not in self.covered]
            if len(left) == len(family.members):
                found.append(family)
            else:
                found += [family.only(number) for number in left]
        return found

    def _unused(self) -> list[Family]:
        same = SameTensors(self.b)
        taps = [
            tap
            for tap in self.side_b.taps
            if tap.name not in self.used and same.held_by(tap.name, self.used) is None
        ]
        return families(taps)

    def _proposal(self, name: str) -> Proposal:
        names_a, names_b = (_names(side.taps) for side in (self.side_a, self.side_b))
        same = SameTensors(self.a)
        repeating = find_repeating(self.side_b, self.fitter, self.used, self.fitting)
        lines = sorted(self._split(), key=lambda line: self._place(line.rule.a))
        weights = propose_weights(self.a, self.b, lines)
        open_weights = find_open_weights(self.a, self.b, weights)
        return Proposal(
            a=str(self.a.path),
            b=str(self.b.path),
            tap_map=TapMap(
                format="verify-tap-map",
                version=1,
                name=name,
                a=self.a.manifest.model.architecture or self.a.manifest.model.name,
                b=self.b.manifest.model.architecture or self.b.manifest.model.name,
                sizes=self.speller.sizes,
                tap=[line.rule for line in lines],
                weight=weights,
                alone=alone_lines(self.b, repeating, self.used),
            ),
            lines=lines,
            open_a=[
                t for t in names_a if t not in self.covered and not same.held_by(t, self.covered)
            ],
            open_b=[t for t in names_b if t not in self.used and t not in repeating],
            repeats_b=list(repeating),
            open_weights_a=open_weights[0],
            open_weights_b=open_weights[1],
        )

    def _split(self) -> list[Line]:
        """The lines, with the parts of fused taps named."""
        lengths = {}
        for family in (*self.families_b, *self.singles_b):
            lengths[family.any.name] = family.any.row_length
            for shift in SHIFTS:
                lengths[shifted(family.template, shift)] = family.any.row_length
        rules = self.speller.split([line.rule for line in self.lines], lengths)
        return [
            msgspec.structs.replace(line, rule=rule)
            for line, rule in zip(self.lines, rules, strict=True)
        ]

    def _place(self, pattern: str) -> int:
        """Execution order of the first tap of a line."""
        return min(
            (tap.order for tap in self.side_a.taps if match(pattern, tap.name) is not None),
            default=0,
        )


def _one_by_one(offered: Sequence[Family]) -> list[Family]:
    return [f if f.is_single else f.only(number) for f in offered for number in f.members]


def _names(taps: list[Tap]) -> list[str]:
    return list(dict.fromkeys(tap.name for tap in sorted(taps, key=lambda t: t.order)))
