"""argmax and top-k with the tie rule by name: logits in 16-bit formats tie often."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.reference.layers.checks import Array, as_float64, check_axis, check_choice, check_count

TieRule = Literal["lowest-index", "highest-index"]
TIE_RULES = ("lowest-index", "highest-index")
KeepRule = Literal["by-rank", "by-value"]
KEEP_RULES = ("by-rank", "by-value")


def argmax(logits: Any, *, ties: TieRule = "lowest-index") -> NDArray[np.int64]:
    """Index of the largest element along the last axis.

    Args:
        logits: [..., vocabulary], as stored (a tie is an equality of stored values).
        ties: which of several equal maxima is taken.

    Returns:
        [...] int64.

    Raises:
        ArgumentError: NaN among the logits (it has no order), or an unknown tie rule.
    """
    check_choice("ties", ties, TIE_RULES)
    values = _ordered(logits)
    if ties == "lowest-index":
        return np.asarray(values.argmax(axis=-1), dtype=np.int64)
    last: NDArray[np.int64] = values.shape[-1] - 1 - values[..., ::-1].argmax(axis=-1)
    return last


def top_k(logits: Any, k: int, *, ties: TieRule = "lowest-index") -> NDArray[np.int64]:
    """Indices of the k largest elements, largest first; equal ones in the order of ``ties``.

    Returns:
        [..., k] int64.

    Raises:
        ArgumentError: k outside 1 .. vocabulary, NaN, or an unknown tie rule.
    """
    check_choice("ties", ties, TIE_RULES)
    values = _ordered(logits)
    count = values.shape[-1]
    check_count("k", k, most=count)
    rows = values.reshape(-1, count)
    # Sorting a vocabulary is slow: sort only what is not below the k-th largest value.
    thresholds = np.partition(rows, count - k, axis=-1)[:, count - k]
    chosen = np.empty((len(rows), k), dtype=np.int64)
    for index, (row, threshold) in enumerate(zip(rows, thresholds, strict=True)):
        candidates = np.flatnonzero(row >= threshold)
        if ties == "highest-index":
            candidates = candidates[::-1]
        order = np.argsort(-row[candidates], kind="stable")
        chosen[index] = candidates[order[:k]]
    return chosen.reshape(*values.shape[:-1], k)


def kept_by_top_k(
    logits: Any, k: int, *, keep: KeepRule = "by-rank", ties: TieRule = "lowest-index"
) -> NDArray[np.bool_]:
    """Which elements survive a top-k filter.

    ``by-rank`` keeps exactly k; ``by-value`` keeps everything not below the k-th largest value,
    so more than k where the k-th is tied.

    Returns:
        [..., vocabulary] bool.
    """
    check_choice("keep", keep, KEEP_RULES)
    values = _ordered(logits)
    chosen = top_k(values, k, ties=ties)
    if keep == "by-value":
        threshold = np.take_along_axis(values, chosen[..., -1:], axis=-1)
        return np.asarray(values >= threshold)
    kept = np.zeros(values.shape, dtype=np.bool_)
    np.put_along_axis(kept, chosen, True, axis=-1)
    return kept


def _ordered(logits: Any) -> Array:
    values = as_float64(logits, "logits")
    check_axis("logits", values)
    if np.isnan(values).any():
        at = tuple(int(axis[0]) for axis in np.nonzero(np.isnan(values)))
        raise ArgumentError("NaN has no rank", where=f"logits{list(at)}", found="NaN")
    return values
