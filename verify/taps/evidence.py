"""A line of a proposal: the rule of a candidate, and what speaks for it in words."""

from __future__ import annotations

from verify.taps.choose import Choice
from verify.taps.families import Family
from verify.taps.fits import Fit, room
from verify.taps.proposal import Confidence, Line
from verify.taps.spelling import Speller


def line_of(choice: Choice, speller: Speller) -> Line:
    """The rule that a choice amounts to, with its evidence."""
    candidate = choice.candidate
    fits = list(candidate.fits.values())
    distances = [fit.distance for fit in fits]
    confidence = _confidence(choice)
    return Line(
        rule=speller.rule(candidate),
        taps=len(candidate.pairs()),
        confidence=confidence,
        distance=min(distances, default=None),
        basis=fits[0].basis if fits else "",
        rows=sum(fit.rows for fit in fits),
        layers=len(fits),
        worst=max(distances, default=None),
        next_best=choice.next_best,
        alike=choice.alike,
        evidence=_in_words(choice, confidence),
    )


def _confidence(choice: Choice) -> Confidence:
    candidate = choice.candidate
    if not candidate.fits:
        return "shape"
    taps = [candidate.a.any, *(source.any for source in candidate.sources)]
    worst = max(fit.distance for fit in candidate.fits.values())
    if worst == 0.0:
        return "equal"
    return "rounding" if worst <= room(*taps) else "near"


def _in_words(choice: Choice, confidence: Confidence) -> str:
    candidate = choice.candidate
    if confidence == "shape":
        return "length, order and name alone; no value speaks for it"
    fits = candidate.fits
    texts = [_distances(list(fits.values()), candidate.a)]
    if choice.next_best is not None:
        texts.append(f"next best {choice.next_best:.2g}")
    if candidate.shift and choice.same_layer is not None:
        texts.append(f"the tap of the same layer is {choice.same_layer:.2g} apart")
    if choice.alike > 1:
        texts.append(f"{choice.alike} tensors fit alike: layer and order decide")
    return "; ".join(texts)


def _distances(fits: list[Fit], family: Family) -> str:
    basis = {"words": "value", "digests": "digest", "sketches": "sketch"}[fits[0].basis]
    where = f"{sum(fit.rows for fit in fits)} rows"
    if not family.is_single:
        where += f" of {len(fits)} layers"
    least, most = min(f.distance for f in fits), max(f.distance for f in fits)
    if most == 0.0:
        return f"every {basis} of {where} is equal"
    how = " (by sketch)" if basis == "sketch" else ""
    if least == 0.0:
        equal = sum(fit.distance == 0.0 for fit in fits)
        return f"equal in {equal} of {len(fits)} layers looked at, else up to {most:.2g} apart{how}"
    apart = f"{least:.2g}" if least == most else f"{least:.2g} to {most:.2g}"
    return f"{apart} apart, relative, in {where}{how}"
