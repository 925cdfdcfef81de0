"""The front of all certificates: one output, or a pair of outputs of the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np

from verify.bounds import Bound
from verify.errors import ArgumentError
from verify.reference.certificates.evidence import relative_l2
from verify.reference.certificates.layer_call import LayerCall
from verify.reference.certificates.layer_op import Inputs, LayerOp
from verify.reference.certificates.layers import (
    Judgement,
    arithmetic_name,
    declare_call,
    judge_call,
    judge_layer,
)
from verify.reference.certificates.result import Certificate, Check, conclude
from verify.reference.certificates.selection import Select, certify_selection
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.budgets import running_budget


@dataclass(frozen=True)
class Attention:
    """Attention as an operation: its inputs are those of
    :class:`verify.reference.attention.AttentionInputs`, given as one or as a mapping, and its
    arithmetic is a :class:`verify.reference.replay.arithmetic.Arithmetic`.

    Args:
        rows: (batch, token, head) of the query rows that are judged; all by default.
        replay: also demand that the output lies in the interval of the step-by-step replay.
    """

    rows: Sequence[tuple[int, int, int]] | None = None
    replay: bool = False

    name = "attention"


def certify(
    actual: Any,
    inputs: Any,
    op: LayerOp | Select | Attention,
    arithmetic: Any = None,
    *,
    store: str | None = None,
) -> Certificate:
    """Is this output what the declared arithmetic gives?

    Args:
        actual: the output, numpy or torch, in its own dtype (or name it in ``store``).
        inputs: the rounded tensors that the kernel read, by the names that ``op`` lists.
        op: the operation with parameters and declared roundings.
        arithmetic: what else is declared: an
            :class:`verify.reference.layers.arithmetic.Arithmetic` (FP32 with sums in any order by
            default), or for attention that of the replay, which has no default.

    Returns:
        EXPLAINED, PRECISION (another declared convention explains it), SUSPECT or DEFECT.

    Raises:
        ArgumentError: inputs, output or parameters that do not fit.
    """
    if isinstance(op, Select):
        return certify_selection(actual, inputs, op)
    if isinstance(op, Attention):
        return _certify_attention(actual, inputs, op, arithmetic)
    return judge_layer(actual, inputs, op, arithmetic, store=store).certificate


def _certify_attention(actual: Any, inputs: Any, op: Attention, arithmetic: Any) -> Certificate:
    from verify.reference.attention.inputs import AttentionInputs, Row
    from verify.reference.certificates.attention import certify_attention
    from verify.reference.replay.arithmetic import Arithmetic as AttentionArithmetic

    if not isinstance(arithmetic, AttentionArithmetic):
        raise ArgumentError(
            "attention needs the arithmetic that its kernel declares",
            where="arithmetic",
            found=repr(arithmetic),
            allowed="verify.reference.replay.arithmetic.Arithmetic(...)",
        )
    given = inputs if isinstance(inputs, AttentionInputs) else AttentionInputs(**inputs)
    rows = None if op.rows is None else [Row(*row) for row in op.rows]
    return certify_attention(actual, given, arithmetic, rows, replay=op.replay)


def certify_pair(
    a: Any,
    b: Any,
    inputs: Inputs,
    op: LayerOp,
    arithmetic: Arithmetic | None = None,
    *,
    op_b: LayerOp | None = None,
    arithmetic_b: Arithmetic | None = None,
    store_a: str | None = None,
    store_b: str | None = None,
) -> Certificate:
    """Two outputs of one operation on one set of inputs: who is closer to FP64, by how much, and
    is their difference within both budgets?

    ``op_b`` and ``arithmetic_b`` are what B declares, by default the same as A. Conventions in
    which the two differ, declared or found, make the outcome PRECISION where nothing is broken.

    Raises:
        ArgumentError: as :func:`certify`.
    """
    other_op, other_arithmetic = op_b or op, arithmetic_b or arithmetic
    call_a = declare_call(a, inputs, op, arithmetic, store_a)
    call_b = declare_call(b, inputs, other_op, other_arithmetic, store_b)
    if _declared(call_a) == _declared(call_b):
        call_b = call_a
    first, second = judge_call(a, call_a), judge_call(b, call_b)
    checks = [*_named_checks("A", first), *_named_checks("B", second), _difference(first, second)]
    names = [arithmetic_name(given or Arithmetic()) for given in (arithmetic, other_arithmetic)]
    return conclude(
        op.name,
        "A against B: " + (names[0] if names[0] == names[1] else " against ".join(names)),
        checks,
        reasons=[*_who_is_closer(first, second), *_remarks("A", first), *_remarks("B", second)],
        numbers=_pair_numbers(first, second),
        conventions=_differing(first, second, op, other_op),
    )


def _declared(call: LayerCall) -> tuple[Any, ...]:
    return call.op, call.arithmetic, call.store


def _named_checks(side: str, judged: Judgement) -> Iterator[Check]:
    for check in judged.certificate.checks:
        yield msgspec.structs.replace(check, name=f"{side}: {check.name}")


def _remarks(side: str, judged: Judgement) -> Iterator[str]:
    """What a certificate says beyond its broken checks, which the pair states itself."""
    certificate = judged.certificate
    for reason in certificate.reasons[len(certificate.failed) :]:
        yield f"{side}: {reason}"


def _difference(first: Judgement, second: Judgement) -> Check:
    """|A - B| against the sum of both running budgets."""
    a, b = first.evidence, second.evidence
    budget = running_budget(a.held, a.exact, a.store).values
    budget = budget + running_budget(b.held, b.exact, b.store).values
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(a.actual - b.actual)
        share = np.where(apart == 0.0, 0.0, apart / budget)
        # Equal infinities and NaN on both sides are no difference; the other checks judge them.
        share = np.where(np.isnan(apart), 0.0, share)
    worst = float(share.max())
    return Check(
        name="difference in both budgets",
        statistic=worst,
        limit=Bound(1.0, "|A - B| <= budget of A + budget of B"),
        passed=worst <= 1.0,
    )


def _pair_numbers(first: Judgement, second: Judgement) -> dict[str, float]:
    a, b = first.certificate.numbers, second.certificate.numbers
    return {
        "error_a": a["error"],
        "error_b": b["error"],
        "floor_a": a["floor"],
        "floor_b": b["floor"],
        "error_ratio": a["error"] / b["error"] if b["error"] > 0.0 else 0.0,
        "difference": relative_l2(second.evidence.actual, first.evidence.actual),
        "budget_used_a": a["budget_used"],
        "budget_used_b": b["budget_used"],
    }


# Two correct kernels round differently here and there; their errors agree to a few percent.
_SAME_DISTANCE = 1.05


def _who_is_closer(first: Judgement, second: Judgement) -> Iterator[str]:
    a, b = first.certificate.numbers["error"], second.certificate.numbers["error"]
    if max(a, b) <= _SAME_DISTANCE * min(a, b):
        yield f"A and B are equally far from FP64: {a:.3g} and {b:.3g} (relative L2)"
        return
    side, near, far = ("A", a, b) if a < b else ("B", b, a)
    times = f", by a factor of {far / near:.3g}" if near > 0.0 else ""
    yield f"{side} is closer to FP64{times}: {a:.3g} for A, {b:.3g} for B (relative L2)"


def _differing(first: Judgement, second: Judgement, op: LayerOp, other: LayerOp) -> Iterator[str]:
    """Conventions of the one side that the other does not share."""
    if type(op) is not type(other):
        raise ArgumentError(
            "a pair is two outputs of one operation",
            where="op_b",
            found=other.name,
            allowed=op.name,
        )
    found_a, found_b = first.certificate.conventions, second.certificate.conventions
    if op == other:
        yield from (f"A: {name}" for name in found_a if name not in found_b)
        yield from (f"B: {name}" for name in found_b if name not in found_a)
        return
    for item in fields(op):  # type: ignore[arg-type]
        ours, theirs = getattr(op, item.name), getattr(other, item.name)
        if ours != theirs:
            yield f"{item.name}: {ours} for A, {theirs} for B, as declared"
    yield from (f"A: {name}" for name in found_a)
    yield from (f"B: {name}" for name in found_b)
