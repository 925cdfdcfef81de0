"""Detector: which rows, heads and channels a difference touches, in words."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]

_LISTED = 8
"""So many numbers are listed one by one; more are counted."""

_TOKEN_AXES = ("b", "t", "s")
_CHANNEL = ("channel", "channels")
_AXIS_NAMES = {
    "h": ("head", "heads"),
    "c": _CHANNEL,
    "d": _CHANNEL,
    "v": ("token id", "token ids"),
}


def describe_numbers(one: str, many: str, touched: NDArray[np.int64], size: Sequence[int]) -> str:
    """Which of the numbers ``size`` are touched: all, one range, a list, or a count.

    ``one`` and ``many`` are the noun: ``describe_numbers("head", "heads", [3, 4], range(9))`` is
    ``"heads 3 to 4 of 9"``.
    """
    every = np.unique(np.asarray(size, np.int64))
    touched = np.unique(touched)
    if len(touched) == len(every):
        return f"all {len(every)} {many}" if len(every) != 1 else f"the only {one}"
    of = f" of {len(every)}"
    if len(touched) == 1:
        return f"{one} {touched[0]}{of}"
    places = np.searchsorted(every, touched)
    if places[-1] - places[0] + 1 == len(places):
        if places[-1] == len(every) - 1:
            return f"{many} from {touched[0]} on ({len(touched)}{of})"
        return f"{many} {touched[0]} to {touched[-1]} ({len(touched)}{of})"
    if len(touched) <= _LISTED:
        return f"{many} {', '.join(map(str, touched))}{of}"
    return f"{len(touched)}{of} {many}, the first is {touched[0]}"


def describe_rows(
    differing: NDArray[np.int64], every: NDArray[np.int64], sequences: int = 1
) -> str:
    """Positions of the differing rows out of those that were compared, over all sequences."""
    if len(every) and (every < 0).all():
        return "the whole tensor"
    text = describe_numbers("position", "positions", differing, every.tolist())
    return text if sequences < 2 else f"{text}, in {sequences} sequences"


def free_axes(axes: str, shape: Sequence[int]) -> list[tuple[str, int]]:
    """The axes that make up the elements of a row, with their sizes, in order."""
    return [(n, s) for n, s in zip(axes.split(), shape, strict=True) if n not in _TOKEN_AXES]


def describe_elements(touched: Mask, axes: str, shape: Sequence[int]) -> str:
    """Heads, channels and other axes of a row on which elements differ.

    Args:
        touched: [row_length], whether the element differs in any row.
        axes, shape: as the record states them.
    """
    named = free_axes(axes, shape)
    if not named or prod(size for _, size in named) != touched.size:
        return describe_numbers("element", "elements", np.flatnonzero(touched), range(touched.size))
    grid = touched.reshape([size for _, size in named])
    parts = []
    for axis, (name, size) in enumerate(named):
        others = tuple(i for i in range(len(named)) if i != axis)
        one, many = _AXIS_NAMES.get(name, (f"index of {name}", f"indices of {name}"))
        parts.append(
            describe_numbers(one, many, np.flatnonzero(grid.any(axis=others)), range(size))
        )
    return ", ".join(parts)
