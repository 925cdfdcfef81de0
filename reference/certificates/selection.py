"""Certificate of a choice: argmax or top-k, where only the tie rule is free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verify.bounds import Bound
from verify.errors import ArgumentError
from verify.reference.certificates.layer_op import Inputs
from verify.reference.certificates.result import Certificate, Check, conclude
from verify.reference.layers.checks import as_float64, as_ids, check_choice, check_count
from verify.reference.layers.select import TIE_RULES, TieRule, argmax, top_k


@dataclass(frozen=True)
class Select:
    """The ids of the ``k`` largest of ``logits`` [..., vocabulary], largest first; with ``k=None``
    the argmax, an output without the last axis."""

    k: int | None = None
    ties: TieRule = "lowest-index"

    name = "select"

    def __post_init__(self) -> None:
        check_choice("ties", self.ties, TIE_RULES)
        if self.k is not None:
            check_count("k", self.k)

    def chosen(self, logits: Any) -> np.ndarray:
        return (
            argmax(logits, ties=self.ties)
            if self.k is None
            else top_k(logits, self.k, ties=self.ties)
        )


def certify_selection(actual: Any, inputs: Inputs, op: Select) -> Certificate:
    """Judge chosen ids. Another choice among equal logits is PRECISION (the tie rule), any other
    is DEFECT.

    Args:
        actual: [...] ids, or [..., k] for a top-k.
        inputs: ``logits`` [..., vocabulary], as stored.

    Raises:
        ArgumentError: ids out of range or of another shape, NaN among the logits.
    """
    if "logits" not in inputs:
        raise ArgumentError("inputs of select do not fit", where="logits", found="missing")
    logits = as_float64(inputs["logits"], "logits")
    ids, expected = as_ids(actual, "actual", below=logits.shape[-1]), op.chosen(logits)
    if ids.shape != expected.shape:
        raise ArgumentError(
            "the output is not of the shape that select gives",
            where="actual",
            found=f"shape {ids.shape}",
            allowed=f"shape {expected.shape}",
        )
    other: TieRule = "highest-index" if op.ties == "lowest-index" else "lowest-index"
    by_rule = int((ids != expected).sum())
    found, due = (_values(logits, chosen, op) for chosen in (ids, expected))
    wrong = int((found != due).sum()) + _repeated(ids, op)
    checks = [
        Check(
            name="choices that are not the largest",
            statistic=float(wrong),
            limit=Bound(0.0, "comparisons are exact"),
            passed=wrong == 0,
        )
    ]
    conventions, reasons = [], []
    if by_rule and not wrong:
        whole = bool((replace(op, ties=other).chosen(logits) == ids).all())
        conventions = [f"ties={other}" if whole else "ties in another order"]
        reasons = [f"{by_rule} of {ids.size} choices differ, all among equal logits"]
    numbers = {"choices": float(ids.size), "differing": float(by_rule)}
    return conclude(
        op.name, "exact", checks, reasons=reasons, numbers=numbers, conventions=conventions
    )


def _values(logits: np.ndarray, ids: np.ndarray, op: Select) -> np.ndarray:
    index = ids[..., None] if op.k is None else ids
    return np.take_along_axis(logits, index, axis=-1)


def _repeated(ids: np.ndarray, op: Select) -> int:
    """How many ids of a top-k list are there twice."""
    if op.k is None:
        return 0
    return int((np.diff(np.sort(ids, axis=-1), axis=-1) == 0).sum())
