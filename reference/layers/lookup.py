"""Embedding and residual addition: the layers whose only freedom is where they round."""

from __future__ import annotations

from typing import Any, Literal

from verify.errors import ArgumentError
from verify.reference.layers.arithmetic import FP32_UNIT
from verify.reference.layers.checks import (
    Array,
    as_float64,
    as_ids,
    check_choice,
    check_finite,
    check_shape,
)
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to

ScalePrecision = Literal["working", "stored"]
SCALE_PRECISIONS = ("working", "stored")
SumCast = Literal["once", "each"]
SUM_CASTS = ("once", "each")


def embedding(
    ids: Any,
    table: Any,
    *,
    scale: float = 1.0,
    scale_precision: ScalePrecision = "working",
    store: str = "float64",
) -> Array:
    """``table[ids] * scale``.

    Args:
        ids: [...], integers in ``[0, vocabulary)``.
        table: [vocabulary, hidden], the rounded weights.
        scale: 1, or sqrt(hidden) in the Gemma family.
        scale_precision: the scale as an FP32 number, or rounded to ``store`` first (33.94 becomes
            34 in bfloat16).
        store: format of the output; ``float64`` applies no rounding.

    Returns:
        [..., hidden] float64.

    Raises:
        ArgumentError: an id out of range, a table without two axes, a scale that is not finite.
    """
    held = embedding_enclosure(
        ids, table, scale=scale, scale_precision=scale_precision, store=store
    )
    return round_to(held.mid, store)


def embedding_enclosure(
    ids: Any,
    table: Any,
    *,
    scale: float = 1.0,
    scale_precision: ScalePrecision = "working",
    store: str,
) -> Enclosure:
    """What the lookup can hold before its last rounding; a scale of 1 is exact."""
    check_choice("scale_precision", scale_precision, SCALE_PRECISIONS)
    weights, factor = as_float64(table, "table"), check_finite("scale", scale)
    if weights.ndim != 2:
        raise ArgumentError(
            "an embedding table has two axes",
            where="table",
            found=f"shape {weights.shape}",
            allowed="[vocabulary, hidden]",
        )
    rows = Enclosure.exactly(weights[as_ids(ids, "ids", below=weights.shape[0])])
    if factor == 1.0:
        return rows
    if scale_precision == "stored":
        return rows.scaled(float(round_to(as_float64(factor, "scale"), store))).computed(FP32_UNIT)
    return rows.scaled(factor).computed(FP32_UNIT, operations=2)


def residual_add(*terms: Any, cast: SumCast = "each", store: str = "float64") -> Array:
    """The sum of two or more tensors of one shape, from left to right.

    Args:
        terms: [...] each, the rounded values that the kernel read.
        cast: the running sum is rounded to ``store`` after ``each`` addition, or ``once`` at the
            end.

    Raises:
        ArgumentError: fewer than two terms, shapes that differ, an unknown cast.
    """
    return round_to(residual_add_enclosure(*terms, cast=cast, store=store).mid, store)


def residual_add_enclosure(*terms: Any, cast: SumCast = "each", store: str) -> Enclosure:
    """What the sum can hold before its last rounding."""
    check_choice("cast", cast, SUM_CASTS)
    if len(terms) < 2:
        raise ArgumentError(
            "a residual addition has two terms or more", where="terms", found=len(terms)
        )
    values = [as_float64(term, f"terms[{index}]") for index, term in enumerate(terms)]
    for index, value in enumerate(values):
        check_shape(f"terms[{index}]", value, values[0].shape, "the shape of terms[0]")
    total = Enclosure.exactly(values[0])
    for index, value in enumerate(values[1:], start=1):
        total = total.shifted(value).computed(FP32_UNIT)
        if cast == "each" and index < len(values) - 1:
            total = total.stored(store)
    return total
