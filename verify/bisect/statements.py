"""The findings about places where a difference begins: measurements in, statements out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from verify.bisect import advice
from verify.bisect.evidence import Evidence
from verify.bisect.fronts import Front
from verify.bisect.local import LocalFinding
from verify.bisect.result import Finding, Verdict
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.taps import without_layer
from verify.forensics.casts import Cast

Numbers = dict[str, float | int | str]

_NO_NAN = (
    "rounding makes no NaN of finite numbers: something inside the operation left the range, "
    "divided zero by zero, or read what was never written"
)


@dataclass(slots=True)
class Judged:
    """A place with everything that was found out about it."""

    evidence: Evidence
    local: LocalFinding | None
    front: Front | None
    cast: Cast | None
    """The cast that explains every element, if there is one."""
    declared: str | None
    """The differing setting that names the format of the cast."""
    causes: list[str] = field(default_factory=list)
    """Differing settings that are known to change this operation, in words."""

    @property
    def verdict(self) -> Verdict:
        return decide(
            Measured(
                subject=Subject.PLACE,
                local=None if self.local is None else self.local.verdict,
                exact_cast=self.cast is not None,
                declared=self.declared is not None,
                infinite=self.front is not None and self.front.overflows,
            )
        )

    @property
    def group(self) -> tuple[str, ...]:
        """Places with equal keys make one finding."""
        if self.cast is not None:
            return (self.verdict, self.cast.format, self.cast.rounded)
        return (self.verdict, without_layer(self.evidence.origin.tap))


def declared_cast(
    casts: Iterable[Cast], declared: dict[str, str]
) -> tuple[Cast | None, str | None]:
    """The exact cast whose format a differing setting names, and that setting; else any exact one."""
    exact = [cast for cast in casts if cast.exact]
    named = next((cast for cast in exact if cast.format in declared), None)
    if named is not None:
        return named, declared[named.format]
    return (exact[0] if exact else None), None


def state_origins(
    places: Iterable[Judged], others: list[LocalFinding]
) -> tuple[list[Finding], list[LocalFinding]]:
    """One finding for each kind of origin; taps that differ in the layer alone go together.

    Args:
        others: what checkers say about taps that are no origins. Those with the declared cast of an
            origin join its finding; the rest is given back.
    """
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for place in places:
        groups.setdefault(place.group, []).append(place)
    found = []
    for group in groups.values():
        alike = [other for other in others if _is_same_cast(group[0], other)]
        others = [other for other in others if other not in alike]
        found.append(_state(group, alike))
    return found, others


def _is_same_cast(origin: Judged, other: LocalFinding) -> bool:
    declared = origin.cast is not None and origin.declared is not None
    same = declared and origin.cast is not None and other.title == f"a cast to {origin.cast.format}"
    return same and other.verdict is origin.verdict is Verdict.PRECISION


def _state(group: list[Judged], alike: list[LocalFinding]) -> Finding:
    first = group[0]
    origin = first.evidence.origin
    taps = [place.evidence.origin.tap for place in group] + [other.tap for other in alike]
    numbers: Numbers = {k: v for k, v in origin.measure.items() if v is not None}
    title, reasons, settle = _words(first, taps)
    if first.local is not None and first.verdict in (Verdict.DEFECT, Verdict.ROUNDING):
        if not first.local.share:
            numbers |= {"|b - a|": first.local.error, "bound": first.local.bound.value}
        numbers["bound used"] = first.local.used
    return Finding(
        verdict=first.verdict,
        title=title,
        reasons=[*reasons, *_attributes(first), *first.causes, f"{taps[0]}: {origin.judged}"],
        taps=taps,
        support=first.evidence.support,
        numbers=numbers,
        sizes={
            **{p.evidence.origin.tap: size for p in group if (size := _size(p))},
            **{other.tap: other.size for other in alike if other.size},
        },
        settle=settle,
    )


def _size(place: Judged) -> float:
    """Relative L2 of the difference: inputs are equal, so the operation adds all of it."""
    size = place.evidence.origin.measure.get("relative L2")
    return float(size) if isinstance(size, int | float) else 0.0


def _words(first: Judged, taps: list[str]) -> tuple[str, list[str], list[str]]:
    """Title, reasons and next steps."""
    named = list_taps(taps)
    if first.verdict is Verdict.DEFECT and first.local is not None:
        return (
            f"{named}: the difference is larger than rounding can make it",
            [
                *([first.front.describe()] if first.front is not None else []),
                first.local.reason,
                f"bound: {first.local.bound.why}",
            ],
            [advice.REFERENCE],
        )
    if first.front is not None:
        return _front_words(first.front, named)
    if first.verdict is Verdict.ROUNDING and first.local is not None:
        return f"{named}: within its rounding budget", [first.local.reason], []
    cast = first.cast
    if cast is not None and first.declared is not None:
        other = "A" if cast.rounded == "B" else "B"
        title = f"{cast.rounded} holds {named} of {other} rounded to {cast.format}"
        lead = f"{taps[0]}: " if len(taps) > 1 else ""
        return (
            title,
            [f"{lead}{cast.describe()}", f"the settings declare it ({first.declared})"],
            [advice.TAPE],
        )
    if cast is not None:
        return (
            f"{named}: a cast to {cast.format} that no setting declares",
            [cast.describe(), "no differing setting names this format"],
            ["say in the settings of the capture what is cast, or remove the cast"],
        )
    if first.local is not None:
        return (
            f"{named}: {first.local.title or 'looked at, and open'}",
            [first.local.reason],
            [advice.REPLAY],
        )
    why = "nothing has measured yet whether that is rounding: no replay or reference at hand"
    verb = "differs" if len(taps) == 1 else "differ"
    return f"{named} {verb} on equal inputs", [why, *_closest(first)], [advice.REPLAY]


def _closest(place: Judged) -> list[str]:
    return [cast.describe() for cast in place.evidence.casts[:1]]


def _attributes(place: Judged) -> list[str]:
    """Scalars that the operation read and that differ."""
    a, b = place.evidence.origin.attributes_a, place.evidence.origin.attributes_b
    return [
        f"{name} is {a.get(name)} in A and {b.get(name)} in B"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def state_front(front: Front) -> Finding:
    """A front at a tap that inherits other differences, so that it is no origin."""
    title, reasons, settle = _front_words(front, front.place.tap)
    return Finding(
        verdict=decide(Measured(subject=Subject.PLACE, infinite=front.overflows)),
        title=title,
        reasons=[*reasons, "its inputs differ too, but are finite on both sides"],
        taps=[front.place.tap],
        numbers={"rows": len(front.place.at)},
        settle=settle,
    )


def _front_words(front: Front, named: str) -> tuple[str, list[str], list[str]]:
    what = f"{front.describe()}; everything that these rows read is finite or equal"
    if front.overflows:
        return (
            f"{named}: values leave the range of their format here first",
            [what, f"the other side is as large as {front.largest:.6g} there"],
            ["look for the scale that differs, or store this tap in a wider format"],
        )
    return (
        f"{named}: NaN appears here first",
        [what, _NO_NAN],
        ["record the taps inside this operation"],
    )


def state_open(place: Evidence) -> Finding:
    """A difference behind inputs that were not recorded."""
    return Finding(
        verdict=decide(Measured(subject=Subject.REST)),
        title=f"First observed at {place.origin.tap}; what it was computed from is not all recorded",
        reasons=[place.origin.judged, "nothing before it in A's execution order differs"],
        taps=[place.origin.tap],
        support=place.support,
        numbers={k: v for k, v in place.origin.measure.items() if v is not None},
        settle=[advice.MORE_TAPS],
    )


def list_taps(names: list[str]) -> str:
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1} more taps"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
