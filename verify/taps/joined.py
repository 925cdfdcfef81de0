"""A fused tap of A as taps of B side by side: the mirror of a part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from verify.taps.candidates import Candidate
from verify.taps.choose import is_input
from verify.taps.families import Family
from verify.taps.fits import Fitter, room


def find_joined(
    a: Family, families: Sequence[Family], fitter: Fitter, reverse: Fitter
) -> list[Candidate]:
    """Families of B that fill the row of ``a``, one behind the other; none, or one candidate.

    Args:
        reverse: the same fitter with the sides exchanged.
    """
    pieces: dict[int, list[Family]] = defaultdict(list)
    for b in families:
        if (start := _start(a, b, reverse)) is not None:
            pieces[start].append(b)
    parts: list[Family] = []
    at = 0
    while at < a.any.row_length:
        if at not in pieces:
            return []
        parts.append(min(pieces[at], key=lambda f: (is_input(f.any.name), f.any.order)))
        at += parts[-1].any.row_length
    candidate = Candidate(a, tuple(parts), 0, join="concat")
    for number in a.sample():
        there = candidate.partners(number)
        fit = None if there is None else fitter.joined(a.members[number], *there)
        if fit is not None:
            candidate.fits[number] = fit
    return [candidate] if len(parts) > 1 and candidate.fits else []


def _start(a: Family, b: Family, reverse: Fitter) -> int | None:
    """Where the row of ``b`` stands in that of ``a``, in the layer that fits; None: nowhere."""
    if not (b.any.is_float and b.any.row_length < a.any.row_length):
        return None
    for number in a.sample():
        partner = b.partner(number, 0)
        if partner is None:
            continue
        fit = reverse.moved(partner, a.members[number])
        if fit is None or fit.start is None or fit.heads or fit.transposed:
            continue
        if fit.distance <= room(partner, a.members[number]):
            return fit.start
    return None
