"""What a rule does to a row: which elements of B's row stand where in A's.

Splitting, joining side by side, reordering heads and transposing only move elements, so all of them
together are one list of element numbers, and no bit changes.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.taps.sizes import Sizes
from verify.taps.types import TapRule

Columns = NDArray[np.int64]


def columns(rule: TapRule, length: int, sizes: Sizes) -> Columns | None:
    """For each element of A's row the element of B's; None where the whole row stays as it is.

    Args:
        length: elements in B's row (of several that are joined side by side: in all of them).

    Raises:
        ArgumentError: the sizes do not fit the row.
    """
    at = np.arange(length)
    if rule.split is not None:
        at = _part(rule, rule.split, at, sizes)
    if rule.columns is not None:
        start, stop = (sizes.value(text) for text in rule.columns)
        if not 0 <= start < stop <= len(at):
            raise _misfit(rule, f"columns {start}:{stop}", f"0:{len(at)}")
        at = at[start:stop]
    if rule.heads is not None:
        at = at[_paired(rule, len(at), sizes)]
    if rule.dims is not None:
        at = _transposed(rule, at, sizes)
    return None if np.array_equal(at, np.arange(length)) else at


def part(names: list[str], take: str | None, sizes: Sizes) -> tuple[int, int, int]:
    """First element of a part, the one behind its last, and the number of all elements."""
    values = [sizes.value(name) for name in names]
    place = names.index(take or "")
    start = sum(values[:place])
    return start, start + values[place], sum(values)


def interleaved_to_halves(length: int, head_dim: int, rotary_dim: int) -> Columns:
    """Element numbers that bring interleaved pairs (0, 1), (2, 3), ... of the first ``rotary_dim``
    channels of each head into halves (0, d/2), (1, d/2 + 1), ...

    The order of llama.cpp's converter: conversion of `q_proj` and `k_proj` in
    https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py (``permute``).
    """
    channel = np.arange(head_dim)
    turned = np.arange(rotary_dim).reshape(-1, 2).T.reshape(-1)
    channel[:rotary_dim] = turned
    heads = np.arange(length // head_dim)[:, None] * head_dim
    return np.asarray((heads + channel).reshape(-1))


def _part(rule: TapRule, names: list[str], at: Columns, sizes: Sizes) -> Columns:
    start, stop, total = part(names, rule.take, sizes)
    if total != len(at):
        parts = " + ".join(f"{name} {sizes.value(name)}" for name in names)
        raise _misfit(rule, f"{parts} = {total}", f"{len(at)} elements in a row of B")
    return at[start:stop]


def _paired(rule: TapRule, length: int, sizes: Sizes) -> Columns:
    head_dim = sizes.value(rule.head_dim)
    rotary_dim = head_dim if rule.rotary_dim is None else sizes.value(rule.rotary_dim)
    if head_dim < 1 or length % head_dim or rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise _misfit(
            rule,
            f"heads of {head_dim}, {rotary_dim} of them turned",
            f"heads that fill a row of {length}, an even number turned",
        )
    found = interleaved_to_halves(length, head_dim, rotary_dim)
    return found if rule.heads == "interleaved" else np.argsort(found)


def _transposed(rule: TapRule, at: Columns, sizes: Sizes) -> Columns:
    shape = [sizes.value(name) for name in rule.dims or ()]
    if prod(shape) != len(at):
        raise _misfit(rule, f"an array of {shape}", f"{len(at)} elements in a row of B")
    return np.asarray(at.reshape(shape).transpose(rule.order).reshape(-1))


def _misfit(rule: TapRule, found: str, allowed: str) -> ArgumentError:
    return ArgumentError(
        "a rule of the tap map does not fit the run",
        where=f"{rule.a} from {', '.join(rule.sources)}",
        found=found,
        allowed=allowed,
        hint="see [sizes] of the map; `verify inspect RUN` shows the shapes of the taps",
    )
