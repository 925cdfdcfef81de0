"""Taps that hold something else than what the model went on with: nothing is blamed for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.bisect.readers import GROSS, PASSED, PASSED_IF_KNOWN, Carried, follow
from verify.bisect.recognise import describe, layout
from verify.bisect.result import Finding
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.sample import sample
from verify.bisect.taps import LOGITS, TOKENS
from verify.compare.align import rows_by_tap
from verify.compare.run import RowComparison
from verify.compare.stand_ins import holds_floats
from verify.dumps.format.input_lists import NOBODY
from verify.dumps.format.records import Records

Rows = NDArray[np.int64]

_SETTLE = (
    "record a copy of this tap where the next operation reads it (`verify capture` does; in a loop "
    "of your own: verify.dumps.capture), and name its axes as they lie"
)


@dataclass(slots=True)
class Artefact:
    """A tap of which one run recorded something else. ``at`` counts in the alignment."""

    tap: str
    at: Rows
    reasons: list[str]


def find_artefacts(compared: RowComparison) -> list[Artefact]:
    """Taps whose gross difference no later operation carries, or that lie in another order.

    Raises:
        CorruptDumpError: words are not those that were stored.
    """
    carried = follow(compared)
    found = [artefact for tap in carried if (artefact := _unread(compared, tap))]
    told = {tap.tap for tap in carried if tap.share is not None}
    found += _layouts(compared, told)
    return found + _repeats(compared, found)


def set_apart(compared: RowComparison, artefacts: list[Artefact]) -> None:
    """Take the rows of artefacts out of the comparison: nothing is known about them, and what was
    computed from them is judged as behind inputs that were not recorded."""
    for artefact in artefacts:
        compared.compared[artefact.at] = False


def state_artefacts(artefacts: list[Artefact]) -> list[Finding]:
    """One finding a tap."""
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.RECORDING)),
            title=f"{artefact.tap} is not the same tensor in both runs",
            reasons=[*artefact.reasons, "so no operation is blamed for it"],
            taps=[artefact.tap],
            numbers={"rows": len(artefact.at)},
            settle=[_SETTLE],
        )
        for artefact in artefacts
    ]


def misled(compared: RowComparison, artefacts: list[Artefact]) -> set[str]:
    """Taps that read one of the artefacts in either run: a replay that is given what the dump holds
    there computes them from the wrong tensor."""
    x = compared.alignment
    wrong = {artefact.tap for artefact in artefacts}
    found: set[str] = set()
    for records in (x.a.records, x.b.records) if wrong else ():
        is_wrong = records.by_kind(lambda kind: kind.tap in wrong)
        readers, read = records.edges()
        taps = records.by_kind(lambda kind: kind.tap, object)
        found.update(taps[readers[is_wrong[read]]].tolist())
    return found - wrong


def state_misled(taps: list[str]) -> list[Finding]:
    """Taps that a check accused on the ground of what an artefact holds."""
    if not taps:
        return []
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.RECORDING)),
            title=f"{taps[0]}{f' and {len(taps) - 1} more' if taps[1:] else ''}: not judged, one of "
            "its inputs was recorded as something else than it read",
            reasons=["a replay from that record computes something else, which says nothing"],
            taps=taps,
            settle=[_SETTLE],
        )
    ]


def _unread(compared: RowComparison, tap: Carried) -> Artefact | None:
    """An artefact where the readers of a tap do not show its difference."""
    if tap.share is None or tap.share > PASSED_IF_KNOWN:
        return None
    rows = sample(compared, tap.at)
    known = describe(rows) if rows else []
    if tap.share > PASSED and not known:
        return None
    said = "what was computed from it does not" if not tap.by_order else "what follows does not"
    readers = "; ".join(dict.fromkeys(tap.readers[:3]))
    reason = f"its rows differ by up to {tap.largest:.3g} of their size, and {said}: {readers}"
    return Artefact(tap.tap, tap.at, [*known, reason])


def _layouts(compared: RowComparison, told: set[str]) -> list[Artefact]:
    """Taps that nothing could be said of, and whose values are A's in another order of the axes.

    Where an attention core carries the difference on, the order is one that the model works with.
    """
    gross = _gross(compared)
    cores = {tap for tap in gross if tap.endswith(".attn.out")}
    return [
        Artefact(tap, at, [found, "no operation after it differs as it would have to"])
        for tap, at in gross.items()
        if tap not in told
        and not cores - {tap}
        and (rows := sample(compared, at)) is not None
        and (found := layout(rows))
    ]


def _gross(compared: RowComparison) -> dict[str, Rows]:
    """Floating-point taps with gross differences, in A's order."""
    m = compared.measures
    large = compared.compared & (m.diff_sq > GROSS**2 * np.nan_to_num(m.ref_sq))
    x = compared.alignment
    judged = x.a.is_of(lambda kind: kind.tap not in (*TOKENS, LOGITS) and holds_floats(kind))
    return rows_by_tap(x, np.flatnonzero(large & judged[x.a.record[x.rows_a]]))


def _repeats(compared: RowComparison, found: list[Artefact]) -> list[Artefact]:
    """Taps that both dumps keep as the very same tensor as one of the artefacts."""
    if not found:
        return []
    x = compared.alignment
    holders = [_held_by(index.records) for index in (x.a, x.b)]
    named = {artefact.tap: artefact for artefact in found}
    rows = _gross(compared)
    return [
        Artefact(tap, rows[tap], [f"it is the same tensor as {holder} in either run"])
        for tap, holder in holders[0].items()
        if holders[1].get(tap) == holder in named and tap in rows and tap not in named
    ]


def _held_by(records: Records) -> dict[str, str]:
    """Taps that repeat another -> that one, as the last record of each says."""
    same = np.flatnonzero(records.same_as != NOBODY)
    taps = records.by_kind(lambda kind: kind.tap, object)
    return dict(zip(taps[same].tolist(), taps[records.holders()[same]].tolist(), strict=True))
