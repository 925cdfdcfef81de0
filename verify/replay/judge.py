"""Is what an implementation adds of its own rounding? FP64 of the same operation on the same
inputs answers, for the operation of a module, an attention core, or the step between two taps."""

from __future__ import annotations

import numpy as np

from verify.compare.elements import floating_values
from verify.errors import VerifyError
from verify.formats import Format, get_format
from verify.reference.certificates.certify import certify_pair
from verify.reference.certificates.layer_op import Inputs
from verify.reference.certificates.result import Certificate, Outcome
from verify.replay.cases import COLUMNS, Case
from verify.replay.core import judge_core
from verify.replay.exact import judge_cache, judge_cast, judge_exact
from verify.replay.judgement import Judgement, Sides, Values, worst_element
from verify.replay.ops import module_op, segment_op


def judge(case: Case, sides: Sides) -> Judgement | None:
    """None where no reference knows the operation, or the words are no floating-point numbers."""
    fmt = get_format(case.record.dtype)
    if fmt.kind != "float":
        return None
    try:
        if case.attention is not None:
            return judge_core(case, sides, fmt)
        found = (
            _layer(case, sides, fmt) or judge_exact(case, sides, fmt) or judge_cache(case, sides)
        )
        if found is None or found.outcome is Outcome.DEFECT:
            # Values that are the other side's, rounded, all of them, are no accident: name that.
            return judge_cast(case, sides, fmt) or found
        return found
    except VerifyError:
        return None  # inputs that the reference does not admit: not judged, and said so


def _layer(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
    call = module_op(case) if case.module is not None else segment_op(case)
    if call is None:
        return None
    op, inputs = call
    a, b = (floating_values(words, fmt) for words in sides.of(case))
    rows = len(a)
    shape = _shape_of(inputs, rows, a.shape[1])
    if op.name == "linear":
        inputs, a, b, columns = _some_columns(inputs, a, b)
    else:
        columns = np.arange(a.shape[1])
    with np.errstate(all="ignore"):
        certificate = certify_pair(
            a.reshape(shape) if op.name != "linear" else a,
            b.reshape(shape) if op.name != "linear" else b,
            inputs,
            op,
            store_a=fmt.name,
            store_b=fmt.name,
        )
    return _from_certificate(certificate, a, b, columns, rows)


def _shape_of(inputs: Inputs, rows: int, length: int) -> tuple[int, ...]:
    """Rotations see heads apart."""
    x = inputs.get("x")
    if x is not None and getattr(x, "ndim", 0) == 3:
        return (rows, x.shape[1], x.shape[2])
    return (rows, length)


def _some_columns(inputs: Inputs, a: Values, b: Values) -> tuple[Inputs, Values, Values, Values]:
    """At most COLUMNS outputs of a linear layer: those that differ most, and some of all."""
    count = a.shape[1]
    if count <= COLUMNS:
        return inputs, a, b, np.arange(count)
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(b - a), nan=np.inf).max(axis=0)
    worst = np.argsort(-apart, kind="stable")[: COLUMNS // 2]
    spread = np.linspace(0, count - 1, COLUMNS // 2).astype(np.int64)
    columns = np.unique(np.concatenate([worst, spread]))
    chosen = {**inputs, "weight": inputs["weight"][columns]}
    if inputs.get("bias") is not None:
        chosen["bias"] = inputs["bias"][columns]
    return chosen, a[:, columns], b[:, columns], columns


def _from_certificate(
    certificate: Certificate, a: Values, b: Values, columns: Values, rows: int
) -> Judgement:
    row, element, apart = worst_element(a, b)
    numbers = certificate.numbers
    shared = next(c for c in certificate.checks if c.name == "difference in both budgets")
    failed = [c.name for c in certificate.failed if c.outcome is certificate.outcome]
    reason = f"{certificate.op} against FP64: " + "; ".join(
        certificate.reasons[:3] if failed else [*certificate.conventions, *certificate.reasons[-1:]]
    )
    return Judgement(
        certificate.outcome,
        certificate.op,
        reason,
        numbers["error_a"],
        numbers["error_b"],
        shared.statistic,
        apart,
        row,
        int(columns[element]),
        rows,
    )
