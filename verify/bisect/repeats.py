"""Captures that kept views of memory which was used again: one tensor in the place of many."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.bisect.result import Finding
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.taps import layer_of, without_layer
from verify.compare.index import PADDING, RowIndex
from verify.compare.pairs import read_entries
from verify.compare.stand_ins import holds_floats
from verify.dumps.format.tokens import TOKENS_IN
from verify.formats import decode

Numbers = NDArray[np.int64]

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
    layers: dict[str, list[Numbers]] = defaultdict(list)
    first: dict[str, str] = {}
    for tap, numbers in _float_records(index).items():
        if layer_of(tap) is not None and (held := numbers[_sizes(index, numbers) > 0]).size:
            layers[without_layer(tap)].append(held)
            first.setdefault(without_layer(tap), tap)
    several = {tap: held for tap, held in layers.items() if len(held) > 1}
    repeated = [
        tap
        for tap, held in several.items()
        if all(_same_rows(index, held[0], other) for other in held[1:])
    ]
    if 2 * len(repeated) <= len(several):
        return []
    return repeated if any(_is_varied(index, first[tap]) for tap in repeated) else []


def _float_records(index: RowIndex) -> dict[str, Numbers]:
    """Tap -> its records of floating-point numbers."""
    is_float = index.records.by_kind(holds_floats)
    found = {tap: numbers[is_float[numbers]] for tap, numbers in index.records.by_tap().items()}
    return {tap: numbers for tap, numbers in found.items() if numbers.size}


def _sizes(index: RowIndex, numbers: Numbers) -> Numbers:
    return np.asarray(index.starts[numbers + 1] - index.starts[numbers], np.int64)


def _same_rows(index: RowIndex, a: Numbers, b: Numbers) -> bool:
    """Whether records hold the same rows one by one, in any order of their rows."""
    if not np.array_equal(_sizes(index, a), _sizes(index, b)):
        return False
    if not np.array_equal(_sorted_digests(index, a[:1]), _sorted_digests(index, b[:1])):
        return False  # as nearly always
    return np.array_equal(_sorted_digests(index, a), _sorted_digests(index, b))


def _sorted_digests(index: RowIndex, numbers: Numbers) -> NDArray[np.uint64]:
    digests = index.digest[index.entries_of(numbers)]
    place = np.repeat(np.arange(len(numbers)), _sizes(index, numbers))
    return digests[np.lexsort((digests, place))]


def repeated_steps(index: RowIndex) -> list[str]:
    """Taps whose rows hold the same bits in all steps of one row, though the tokens differ.

    Only if most floating-point taps do: a table or a mask may rightly stay the same.
    """
    several: dict[str, bool] = {}
    for tap, numbers in _float_records(index).items():
        held = _one_row(index, numbers)
        held = held[index.position[index.starts[held]] >= 0]
        steps = index.records.step[held]
        if np.count_nonzero(np.diff(steps)) + 1 >= _STEPS:
            several[tap] = _same_in_each(steps, index.digest[index.starts[held]])
    repeated = [tap for tap, same in several.items() if same]
    fed = _one_row(index, index.records.where(lambda kind: kind.tap == TOKENS_IN))
    tokens = np.unique(index.digest[index.starts[fed]])
    if len(tokens) < 2 or len(repeated) < _TAPS or 2 * len(repeated) <= len(several):
        return []
    return repeated if any(_is_varied(index, tap) for tap in repeated) else []


def _one_row(index: RowIndex, numbers: Numbers) -> Numbers:
    """The records that hold one row, of some text."""
    one = numbers[_sizes(index, numbers) == 1]
    return np.asarray(one[index.sequence[index.starts[one]] != PADDING], np.int64)


def _same_in_each(steps: NDArray[Any], digests: NDArray[np.uint64]) -> bool:
    """Whether every step holds the same digests, in any order and number."""
    count = np.count_nonzero(np.diff(steps)) + 1  # steps never fall
    if count == len(steps):
        return bool((digests == digests[0]).all())
    distinct = len(np.unique(digests))
    pairs = np.unique(np.stack([steps.astype(np.uint64), digests], axis=1), axis=0)
    return len(pairs) == distinct * count


def _is_varied(index: RowIndex, tap: str) -> bool:
    """Whether the first row of a tap holds several finite values: NaN or zeros everywhere repeat
    without any capture at fault."""
    number = int(index.records.where(lambda kind: kind.tap == tap)[0])
    record = index.records[number]
    if not index.full[number]:
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
