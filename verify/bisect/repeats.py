"""Captures that kept views of memory which was used again: one tensor in the place of many."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from verify.bisect.result import Finding
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.taps import layer_of, without_layer
from verify.compare.index import PADDING, RowIndex
from verify.compare.pairs import read_entries
from verify.dumps.format.tokens import TOKENS_IN
from verify.formats import decode, get_format

_STEPS = 3  # two steps may hold the same rows by chance of their tokens
_TAPS = 3  # what is left of a run where a few taps were recorded may rightly stay the same

_SETTLE = "record copies: `verify capture`, or verify.dumps.capture for your own loop"


def check_repeats(side: str, index: RowIndex) -> list[Finding]:
    """One run alone: the same bits in all layers, or in all steps."""
    found = []
    for repeated, where in ((repeated_layers(index), "layers"), (repeated_steps(index), "steps")):
        if repeated:
            found.append(_all_equal(side, repeated, where))
    return found


def repeated_layers(index: RowIndex) -> list[str]:
    """Taps (layer as ``*``) whose rows hold the same bits in all layers of one run.

    Only floating-point taps of two layers or more count, and only if most of them repeat: a mask
    or a table of angles is rightly the same everywhere.
    """
    digests: dict[str, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for number, record in enumerate(index.records):
        layer = layer_of(record.tap)
        if layer is not None and get_format(record.dtype).kind == "float" and record.n_rows:
            rows = np.sort(index.digest[index.entries(number)])
            digests[without_layer(record.tap)][layer].append(rows.tobytes())
    several = {tap: list(layers.values()) for tap, layers in digests.items() if len(layers) > 1}
    repeated = [tap for tap, held in several.items() if all(rows == held[0] for rows in held)]
    if 2 * len(repeated) <= len(several):
        return []
    first = {without_layer(r.tap): r.tap for r in reversed(index.records)}
    return repeated if any(_is_varied(index, first[tap]) for tap in repeated) else []


def repeated_steps(index: RowIndex) -> list[str]:
    """Taps whose rows hold the same bits in all steps of one row, though the tokens differ.

    Only if most floating-point taps do: a table or a mask may rightly stay the same.
    """
    digests: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    tokens: set[int] = set()
    for number, record in enumerate(index.records):
        own = index.entries(number)
        named = index.sequence[own] != PADDING
        if record.n_rows != 1 or not named.all():
            continue
        digest = int(index.digest[own][0])
        if record.tap == TOKENS_IN:
            tokens.add(digest)
        elif get_format(record.dtype).kind == "float" and index.position[own][0] >= 0:
            digests[record.tap][record.step].add(digest)
    several = {tap: list(steps.values()) for tap, steps in digests.items() if len(steps) >= _STEPS}
    repeated = [tap for tap, held in several.items() if all(rows == held[0] for rows in held)]
    if len(tokens) < 2 or len(repeated) < _TAPS or 2 * len(repeated) <= len(several):
        return []
    return repeated if any(_is_varied(index, tap) for tap in repeated) else []


def _is_varied(index: RowIndex, tap: str) -> bool:
    """Whether the first row of a tap holds several finite values: NaN or zeros everywhere repeat
    without any capture at fault."""
    number = next(n for n, record in enumerate(index.records) if record.tap == tap)
    record = index.records[number]
    if index.dump.holder(record).kept != "full":
        return True
    own = index.entries(number)
    values = decode(read_entries(index, np.arange(own.start, own.start + 1)), record.dtype)
    return bool(np.isfinite(values).all() and len(np.unique(values)) > 1)


def _all_equal(side: str, taps: list[str], where: str) -> Finding:
    return Finding(
        verdict=decide(Measured(subject=Subject.RUNS)),
        title=f"All {where} of run {side} hold the same bits",
        reasons=[
            f"{len(taps)} taps are equal in every {where[:-1]}, for example {taps[0]}",
            f"a capture does that when it keeps views of memory that each {where[:-1]} overwrites",
        ],
        taps=taps,
        settle=[_SETTLE],
    )
