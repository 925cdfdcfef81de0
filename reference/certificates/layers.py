"""Certificate of one layer: is the output what the declared arithmetic gives, and if not, what?

The order of the questions: is every element one that the declared roundings can give (enclosure)?
Do rows, columns or the whole lean to one side (matched filters)? If not clean: does another
declared convention give this output (PRECISION), or a known mistake (DEFECT, named)?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verify.errors import ArgumentError
from verify.formats import get_format
from verify.reference.certificates.evidence import Evidence, relative_l2
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
from verify.reference.layers.checks import Array, as_float64
from verify.reference.layers.enclosure import Enclosure, Noise


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
    arithmetic = arithmetic or Arithmetic()
    check_inputs(op, inputs)
    store = store or output_format(actual)
    call = _Call(op, inputs, arithmetic, store)
    declared = gather(as_float64(actual, "actual"), call)
    checks, unseen = _judge(declared, call)
    if all(check.passed for check in checks):
        return _conclude(call, checks, unseen, declared)
    variant, other = _explaining(declared, call)
    if variant is None or other is None:
        reasons = [*_named(declared, call), *describe_outside(declared)]
        return _conclude(call, checks, reasons, declared)
    checks, unseen = _judge(other, replace(call, op=variant.op))
    lost = int(declared.outside.sum())
    reason = (
        f"under the declared convention {lost} of {declared.actual.size} elements are "
        f"impossible; with {variant.name} every element follows"
    )
    return _conclude(call, checks, [reason, *unseen], other, variant.name)


@dataclass(frozen=True)
class _Call:
    """One call of a layer: all that the reference needs beside the output."""

    op: LayerOp
    inputs: Inputs
    arithmetic: Arithmetic
    store: str

    def held(self) -> Enclosure:
        return self.op.enclosure(self.inputs, self.store, self.arithmetic)

    def made(self, variant: Variant) -> _Call:
        return replace(self, op=variant.op, inputs=variant.inputs or self.inputs)

    def subtle(self) -> list[Variant]:
        return [variant for variant in self.op.mistakes(self.inputs) if variant.subtle]


def _judge(evidence: Evidence, call: _Call) -> tuple[list[Check], list[str]]:
    """Every check of one output, and what it could not have shown."""
    changed = {
        variant.name: call.made(variant).held().mid.reshape(evidence.actual.shape)
        for variant in call.subtle()
    }
    mistakes = project_mistakes(evidence, changed)
    checks = [*element_checks(evidence), *pattern_checks(evidence, mistakes)]
    unseen = [f"not excluded by this output: {name}" for name in not_excluded(evidence, mistakes)]
    return checks, unseen


def _conclude(
    call: _Call, checks: list[Check], reasons: list[str], evidence: Evidence, convention: str = ""
) -> Certificate:
    return conclude(
        call.op.name,
        arithmetic_name(call.arithmetic),
        checks,
        reasons=reasons,
        numbers=measured(evidence),
        conventions=[convention] if convention else [],
    )


def gather(actual: Array, call: _Call) -> Evidence:
    """The evidence of one output, as rows of the last axis.

    Raises:
        ArgumentError: an output of another size than the layer gives.
    """
    held, exact = call.held(), call.op.exact(call.inputs)
    width = held.mid.shape[-1] if held.mid.ndim else 1
    if actual.size != held.mid.size or (actual.ndim and actual.shape[-1] != width):
        raise ArgumentError(
            f"the output is not of the shape that {call.op.name} gives",
            where="actual",
            found=f"shape {actual.shape}",
            allowed=f"shape {held.mid.shape}",
        )
    shape = (-1, width)
    return Evidence(actual.reshape(shape), exact.reshape(shape), _flat(held, shape), call.store)


def _flat(held: Enclosure, shape: tuple[int, int]) -> Enclosure:
    full = held.mid.shape

    def flat(values: Array) -> Array:
        return np.broadcast_to(values, full).reshape(shape)

    noise = held.noise
    return replace(
        held,
        mid=flat(held.mid),
        lo=flat(held.lo),
        hi=flat(held.hi),
        near_lo=flat(held.near_lo),
        near_hi=flat(held.near_hi),
        noise=Noise(flat(noise.mean_abs), flat(noise.rms), flat(noise.common), flat(noise.drift)),
    )


def _fits(evidence: Evidence) -> bool:
    return all(check.passed for check in element_checks(evidence))


def _retried(declared: Evidence, call: _Call) -> Evidence | None:
    """The evidence under another call; None where these inputs do not admit it."""
    try:
        return gather(declared.actual, call)
    except ArgumentError:
        return None


def _explaining(declared: Evidence, call: _Call) -> tuple[Variant | None, Evidence | None]:
    """The convention that explains every element, the closest one where several do."""
    tried = ((v, _retried(declared, call.made(v))) for v in call.op.conventions())
    fitting = [(v, e) for v, e in tried if e is not None and _fits(e)]
    return min(fitting, key=lambda pair: pair[1].flips[0], default=(None, None))


def _named(declared: Evidence, call: _Call) -> Iterator[str]:
    """Mistakes that reproduce the output, in the declared convention or else in another."""
    near = {v.name for v in call.op.mistakes(call.inputs) if _is_candidate(declared, call, v)}
    for setting in (Variant("", call.op), *call.op.conventions()):
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


def _is_candidate(declared: Evidence, call: _Call, variant: Variant) -> bool:
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


def output_format(actual: Any) -> str:
    """The storage format of an output, from its dtype.

    Raises:
        ArgumentError: float64 (the reference has no more digits), or not a float format.
    """
    name = str(getattr(actual, "dtype", "")).removeprefix("torch.")
    if name in ("", "float64", "object"):
        raise ArgumentError(
            "the storage format of the output is not known",
            where="actual",
            found=name or type(actual).__name__,
            allowed="a tensor of the output's own dtype, or store='bfloat16' and the like",
        )
    return get_format(name).name


def arithmetic_name(arithmetic: Arithmetic) -> str:
    """The accumulation model in one line, for reports."""
    return repr(arithmetic.accumulate)
