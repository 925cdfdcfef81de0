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
    if rule := _rule(touched, every):
        return f"{rule.replace('#', many)} ({len(touched)}{of})"
    if len(touched) <= _LISTED:
        return f"{many} {', '.join(map(str, touched))}{of}"
    return f"{len(touched)}{of} {many}, the first is {touched[0]}"


_PERIODS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Page, tile and vector sizes that faults follow."""

_REPEATS = 3
"""Numbers without which a rule is no rule: two of anything have a distance."""


def _rule(touched: NDArray[np.int64], every: NDArray[np.int64]) -> str | None:
    """A rule that gives exactly the touched numbers, with ``#`` for their noun."""
    if len(touched) < _REPEATS:
        return None
    lacking = np.setdiff1d(every, touched)
    if len(lacking) == 1:
        return f"all # but {lacking[0]}"
    for period in _PERIODS:
        rest = int(touched[0]) % period
        for first in (int(every[0]), int(touched[0])):
            candidates = every[(every % period == rest) & (every >= first)]
            if np.array_equal(candidates, touched):
                start = "" if first == every[0] else f" from {first} on"
                parity = "even" if rest == 0 else "odd"
                named = f"{parity} #" if period == 2 else f"# that leave {rest} modulo {period}"
                return named + start
    return None


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


_MOST_OF_IT = 0.99


def describe_concentration(square: NDArray[np.float64], axes: str, shape: Sequence[int]) -> str:
    """The heads that hold 99 % of a difference, where those are not all; empty otherwise.

    Under a difference that a few heads make lies rounding in all of them; sizes tell them apart.

    Args:
        square: [row_length], squared difference of each element, summed over the rows.
        axes, shape: as the record states them.
    """
    named = free_axes(axes, shape)
    sizes = [size for _, size in named]
    if "h" not in dict(named) or prod(sizes) != square.size or not square.sum() > 0:
        return ""
    axis = [name for name, _ in named].index("h")
    others = tuple(i for i in range(len(named)) if i != axis)
    held = square.reshape(sizes).sum(axis=others)
    order = np.argsort(-held, kind="stable")
    count = int(np.searchsorted(np.cumsum(held[order]), _MOST_OF_IT * held.sum())) + 1
    if count >= len(held):
        return ""
    heads = describe_numbers("head", "heads", order[:count].astype(np.int64), range(len(held)))
    return f"{heads} hold{'s' if count == 1 else ''} 99 % of it"
