"""The findings about everything that is not the origin of a difference: weights, formats, and
taps that nothing checked."""

from __future__ import annotations

from verify.bisect.evidence import Evidence
from verify.bisect.result import Finding, Verdict
from verify.bisect.rules import Measured, Subject, decide
from verify.compare.result import Comparison
from verify.dumps.format import Dump

_LISTED = 6


def state_weights(a: Dump, b: Dump, first: list[Evidence], declared: str | None) -> list[Finding]:
    """Weights that differ, and where their effect begins.

    Args:
        first: taps that differ though all activations before them are equal.
        declared: the differing setting that names the cast found at the first of them.
    """
    x, y = a.manifest.model.weights, b.manifest.model.weights
    changed = sorted(name for name in x.keys() & y.keys() if x[name] != y[name])
    alone = sorted(x.keys() ^ y.keys()) if x and y else []
    if not changed and not alone:
        return []
    names = [*changed, *alone]
    reasons = [f"{', '.join(names[:_LISTED])}{', ...' if len(names) > _LISTED else ''}"]
    if alone:
        reasons.append(f"{len(alone)} tensors are in one model only")
    if first:
        reasons.append(f"the effect begins at {first[0].origin.tap}, whose other inputs are equal")
        reasons += [cast.describe() for cast in first[0].casts[:1]]
    if declared:
        reasons.append(f"the settings declare it ({declared})")
    return [
        Finding(
            verdict=_of_formats(declared),
            title=f"{len(names)} of {len(x.keys() | y.keys())} weights differ",
            reasons=reasons,
            taps=[e.origin.tap for e in first[:_LISTED]],
            settle=["compare runs of the same weights, or name the change that is wanted"],
        )
    ]


def _of_formats(setting: str | None) -> Verdict:
    """Of values that are the other side's in another format; ``setting`` declares it."""
    declared = setting is not None
    return decide(Measured(subject=Subject.WEIGHTS, exact_cast=declared, declared=declared))


def state_unchecked(
    comparison: Comparison, judged: set[str], checked: int, *, replayed: bool
) -> list[Finding]:
    """Taps that differ and of which nobody knows what they add themselves.

    Args:
        judged: taps whose difference has a finding of its own.
        checked: taps that a checker answered for.
        replayed: there were checkers, and none could tell about these taps.
    """
    differing = [tap.tap for tap in comparison.taps if tap.differing_rows]
    left = [tap for tap in dict.fromkeys(differing) if tap not in judged]
    if not left:
        return []
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.REST)),
            title=f"{len(left)} more taps differ and were not checked on their own",
            reasons=[
                "they have differing inputs; a defect of their own would be hidden behind that",
                "not checked: "
                + ("the replay knows nothing of them" if replayed else "no replay was made"),
            ],
            taps=left[:_LISTED],
            numbers={"taps that differ": len(set(differing)), "checked": checked},
        )
    ]


def state_formats(comparison: Comparison, declared: dict[str, str]) -> list[Finding]:
    """Taps recorded in another dtype whose values are all equal."""
    taps = [t for t in comparison.taps if t.dtype_a != t.dtype_b and not t.differing_rows]
    if not taps:
        return []
    setting = declared.get(taps[0].dtype_a) or declared.get(taps[0].dtype_b)
    return [
        Finding(
            verdict=_of_formats(setting),
            title=f"{len(taps)} taps have another dtype and equal values",
            reasons=[
                f"{taps[0].tap} is {taps[0].dtype_a} in A and {taps[0].dtype_b} in B",
                *([f"the settings declare it ({setting})"] if setting else []),
            ],
            taps=[tap.tap for tap in taps[:_LISTED]],
        )
    ]
