"""What the local part of a tap is: the detectors of verify.forensics on the rows that were kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verify.compare.elements import floating_values
from verify.forensics.describe import describe
from verify.forensics.pair import Pair
from verify.forensics.support import describe_concentration
from verify.formats import get_format
from verify.replay.cases import Case


def describe_cases(cases: Sequence[Case]) -> tuple[list[str], str]:
    """Fits of f_B(inputs of A) against A's record, and the heads that hold the difference.

    Args:
        cases: of one tap, of B's implementation on A's inputs.
    """
    cases = [case for case in cases if get_format(case.record.dtype).kind == "float"]
    if not cases:
        return [], ""
    record, fmt = cases[0].record, get_format(cases[0].record.dtype)
    cases = [c for c in cases if c.record.dtype == record.dtype]
    a = np.concatenate([floating_values(case.wanted, fmt) for case in cases])
    b = np.concatenate([floating_values(case.computed, fmt) for case in cases])
    pair = Pair(a, b, fmt, record.axes, tuple(record.shape), _others(cases))
    with np.errstate(invalid="ignore", over="ignore"):
        square = np.where(pair.finite, b - a, 0.0) ** 2
    held = describe_concentration(square.sum(axis=0), record.axes, record.shape)
    return [fit.describe() for fit in describe(pair)], held


def _others(cases: Sequence[Case]) -> dict[str, np.ndarray]:
    """What the operation read at the same rows, where every case knows it."""
    names = set.intersection(*(set(case.sources) for case in cases))
    found = {}
    for name in sorted(names):
        kept = [case.sources[name] for case in cases]
        if all(get_format(dtype).kind == "float" for _, dtype in kept):
            parts = [floating_values(words, get_format(dtype)) for words, dtype in kept]
            found[name] = np.concatenate(parts)
    return found
