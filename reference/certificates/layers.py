"""Certificate of one layer: is the output what the declared arithmetic gives, and if not, what?

The order of the questions: is every element one that the declared roundings can give (enclosure)?
Do rows, columns or the whole lean to one side (matched filters)? If not clean: does another
declared convention give this output (PRECISION), or a known mistake (DEFECT, named)?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from verify.errors import ArgumentError
from verify.reference.certificates.evidence import Evidence, relative_l2
from verify.reference.certificates.layer_call import LayerCall, gather, output_format
from verify.reference.certificates.layer_checks import (
    element_checks,
    not_excluded,
    pattern_checks,
    project_mistakes,
)
from verify.reference.certificates.layer_op import Inputs, LayerOp, Variant, check_inputs
from verify.reference.certificates.localise import describe_outside
from verify.reference.certificates.result import Certificate, Check, conclude
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import as_float64


def certify_layer(
    actual: Any,
    inputs: Inputs,
    op: LayerOp,
    arithmetic: Arithmetic | None = None,
    *,
    store: str | None = None,
) -> Certificate:
    """Judge one output of a layer against FP64 and the declared arithmetic.

    Args:
        actual: the output, of the shape that the layer gives; numpy or torch.
        inputs: the rounded tensors that the kernel read, by the names that ``op`` lists.
        op: the operation with its parameters and declared roundings, for example
            ``RmsNorm(eps=1e-6, cast="before-weight")``.
        arithmetic: what is declared beyond that; FP32 with sums in any order by default.
        store: format of the output, by default the dtype of ``actual``.

    Returns:
        EXPLAINED, PRECISION with the convention that does explain the output, SUSPECT, or DEFECT
        with the mistake that reproduces it where one does.

    Raises:
        ArgumentError: inputs or an output that do not fit the operation.
    """
    return judge_layer(actual, inputs, op, arithmetic, store=store).certificate


class Judgement(NamedTuple):
    """A certificate and the evidence under the convention that it speaks of."""

    certificate: Certificate
    evidence: Evidence


def judge_layer(
    actual: Any,
    inputs: Inputs,
    op: LayerOp,
    arithmetic: Arithmetic | None = None,
    *,
    store: str | None = None,
) -> Judgement:
    """:func:`certify_layer`, with the evidence for those who compare two outputs."""
    return judge_call(actual, declare_call(actual, inputs, op, arithmetic, store))


def declare_call(
    actual: Any, inputs: Inputs, op: LayerOp, arithmetic: Arithmetic | None, store: str | None
) -> LayerCall:
    """The call that ``actual`` is said to come from."""
    check_inputs(op, inputs)
    return LayerCall(op, inputs, arithmetic or Arithmetic(), store or output_format(actual))


def judge_call(actual: Any, call: LayerCall) -> Judgement:
    """:func:`judge_layer` of a call whose reference may be at hand already."""
    declared = gather(as_float64(actual, "actual"), call)
    checks, unseen = _judge(declared, call)
    failed = [check for check in checks if not check.passed]
    if not failed:
        return Judgement(_conclude(call, checks, unseen, declared), declared)
    variant, other = _explaining(declared, call)
    if variant is None or other is None:
        reasons = [*_named(declared, call), *describe_outside(declared)]
        return Judgement(_conclude(call, checks, reasons, declared), declared)
    checks, unseen = _judge(other, call.made(variant))
    broken = ", ".join(check.name for check in failed)
    reason = (
        f"as declared: {broken} ({int(declared.outside.sum())} of {declared.actual.size} elements "
        f"impossible); with {variant.name} every element follows"
    )
    return Judgement(_conclude(call, checks, [reason, *unseen], other, variant.name), other)


def _judge(evidence: Evidence, call: LayerCall) -> tuple[list[Check], list[str]]:
    """Every check of one output, and what it could not have shown."""
    changed = {name: mid.reshape(evidence.actual.shape) for name, mid in call.changed.items()}
    mistakes = project_mistakes(evidence, changed)
    checks = [*element_checks(evidence), *pattern_checks(evidence, mistakes)]
    unseen = [f"not excluded by this output: {name}" for name in not_excluded(evidence, mistakes)]
    return checks, unseen


def _conclude(
    call: LayerCall,
    checks: list[Check],
    reasons: list[str],
    evidence: Evidence,
    convention: str = "",
) -> Certificate:
    return conclude(
        call.op.name,
        arithmetic_name(call.arithmetic),
        checks,
        reasons=reasons,
        numbers=measured(evidence),
        conventions=[convention] if convention else [],
    )


def _fits(evidence: Evidence) -> bool:
    return all(check.passed for check in element_checks(evidence))


def _retried(declared: Evidence, call: LayerCall) -> Evidence | None:
    """The evidence under another call; None where these inputs do not admit it."""
    try:
        return gather(declared.actual, call)
    except ArgumentError:
        return None


def _explaining(declared: Evidence, call: LayerCall) -> tuple[Variant | None, Evidence | None]:
    """The convention that explains every element: one that passes every check before one that
    does not, the closer before the farther.

    Where the declared one already admits every element, and only many of them together lean, a
    convention has to explain that too.
    """
    fitting = []
    admitted = _fits(declared)
    for variant in call.op.conventions(call.inputs):
        other = _retried(declared, call.made(variant))
        if other is None or not _fits(other):
            continue
        clean = all(check.passed for check in _judge(other, call.made(variant))[0])
        if clean or not admitted:
            fitting.append((not clean, other.flips[0], variant, other))
    best = min(fitting, key=lambda found: found[:2], default=None)
    return (None, None) if best is None else best[2:]


def _named(declared: Evidence, call: LayerCall) -> Iterator[str]:
    """Mistakes that reproduce the output, in the declared convention or else in another."""
    near = {v.name for v in call.op.mistakes(call.inputs) if _is_candidate(declared, call, v)}
    for setting in (Variant("", call.op), *call.op.conventions(call.inputs)):
        under = f" (with {setting.name})" if setting.name else ""
        found = [
            f"reproduced by: {variant.name}{under}"
            for variant in setting.op.mistakes(call.inputs)
            if variant.name in near
            and (other := _retried(declared, call.made(variant)))
            and _fits(other)
        ]
        if found:
            yield from found
            return


def _is_candidate(declared: Evidence, call: LayerCall, variant: Variant) -> bool:
    """Whether a mistake can be the one: it brings the exact result at least twice as close, or is
    too small for that to show."""
    if variant.subtle:
        return True
    try:
        exact = variant.op.exact(variant.inputs or call.inputs)
    except ArgumentError:
        return False
    off = relative_l2(declared.actual, exact.reshape(declared.actual.shape))
    return off < 0.5 * declared.error


def measured(evidence: Evidence) -> dict[str, float]:
    """The numbers of docs/numerics.md for one output."""
    observed, expected = evidence.flips
    used = evidence.budget_used[np.isfinite(evidence.budget_used)]
    near = evidence.near_used[np.isfinite(evidence.near_used)]
    floor, error = evidence.floor, evidence.error
    return {
        "elements": float(evidence.actual.size),
        "error": error,
        "floor": floor,
        "error_in_floors": error / floor if floor > 0.0 else 0.0,
        "budget_used": float(used.max(initial=0.0)),
        "near_used": float(near.max(initial=0.0)),
        "flips": observed,
        "flips_expected_at_most": expected,
        "undecided_share": float(
            (np.abs(evidence.held.hi - evidence.held.lo) > evidence.ulps).mean()
        ),
    }


def arithmetic_name(arithmetic: Arithmetic) -> str:
    """The accumulation model in one line, for reports."""
    return str(arithmetic.accumulate)
