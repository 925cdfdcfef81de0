"""Taps of B that no line uses because they hold the rows of taps that lines use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from verify.dumps.format import Dump
from verify.taps.fits import Fitter
from verify.taps.same import SameTensors
from verify.taps.sampling import Side, Tap, template_of
from verify.taps.types import Alone


def find_repeating(
    b: Side, fitter: Fitter, used: Collection[str], fitting: Mapping[str, str]
) -> dict[str, str]:
    """Unused tap of B -> the tap whose rows it holds, as far as they were looked at.

    Args:
        used: taps of B that lines use.
        fitting: taps of B that fit a tap of A as well as the one that was chosen -> that tap.
    """
    names = set(used)
    same = SameTensors(b.dump)
    held: dict[object, str] = {}
    for tap in b.taps:
        if tap.name in names:
            held.setdefault(_rows(tap, b, fitter), tap.name)
    found: dict[str, str] = {}
    for tap in b.taps:
        if tap.name in names:
            continue
        if (other := same.held_by(tap.name, names)) is not None:
            found[tap.name] = other
        elif (rows := _rows(tap, b, fitter)) in held:
            found[tap.name] = held[rows]
        elif tap.name in fitting:
            found[tap.name] = fitting[tap.name]
    return found


def alone_lines(b: Dump, repeating: Mapping[str, str], used: Collection[str]) -> list[Alone]:
    """Lines for taps that are other tensors with the same rows; those that are the very tensor need
    none. No line reaches a tap that is used."""
    same = SameTensors(b)
    found: dict[str, Alone] = {}
    for tap, other in repeating.items():
        if same.held_by(tap, used) is None:
            glob = template_of(tap)[0].replace("{n}", "*")
            why = f"holds the same rows as {template_of(other)[0]}"
            found.setdefault(glob, Alone(side="b", tap=glob, why=why))
    return [line for glob, line in found.items() if not any(fnmatchcase(t, glob) for t in used)]


def _rows(tap: Tap, b: Side, fitter: Fitter) -> object:
    keys = fitter.rows(tap)
    return (tuple(keys), tuple(b.digests(tap, keys)))
