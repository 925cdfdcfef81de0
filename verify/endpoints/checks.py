"""The checks on one case, one function a kind; each gives a check, whatever user code does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from verify.bounds import Bound
from verify.endpoints import outputs
from verify.endpoints.difference import against_exact, difference, mismatch
from verify.endpoints.outputs import Outputs
from verify.endpoints.result import (
    CertificateCheck,
    Check,
    PairCheck,
    ReferenceCheck,
    ReferenceError,
    RelationCheck,
    RunCheck,
    State,
    TensorDifference,
)
from verify.endpoints.spec import Case, EndpointSpec, Relation
from verify.endpoints.trial import CannotRun, DidNotRun, Pair, RelationBroken, Trial
from verify.reference.certificates.result import Outcome

Reference = Outputs | str
"""The exact outputs by name, or why there are none."""


def check_run(case: Case, name: str, trial: Trial) -> RunCheck:
    """Call the endpoint once; ``trial.output`` holds what it gave."""
    start = time.perf_counter()
    state, reason = State.PASSED, ""
    try:
        trial.output = trial.call(trial.inputs())
    except DidNotRun as error:
        state, reason = State.FAILED, error.what
    return RunCheck(
        case=case.name,
        endpoint=name,
        state=state,
        reason=reason,
        routes=[route.as_dict() for route in trial.routes],
        outputs=outputs.facts(trial.output),
        seconds=time.perf_counter() - start,
    )


def reference_of(spec: EndpointSpec, case: Case) -> Reference | None:
    """The float64 answer of a case; a text where it cannot be had; None where none is named."""
    if spec.reference is None:
        return None
    try:
        found = outputs.tensors_of(spec.reference(**case.make()))
        wrong = [t.dtype for t in found.values() if t.dtype != torch.float64]
        if wrong:
            return f"the reference gave {str(wrong[0]).removeprefix('torch.')}, wanted float64"
        return outputs.on_host(found)
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return f"the reference did not run: {error!r}"


def check_reference(case: Case, name: str, trial: Trial, exact: Reference) -> ReferenceCheck:
    """Errors against FP64 and over the floor, held to the accuracy that the endpoint declares."""
    accuracy = trial.endpoint.accuracy
    check = ReferenceCheck(
        case=case.name,
        endpoint=name,
        state=State.FAILED,
        limit=None if accuracy is None else accuracy.value,
        why="" if accuracy is None else accuracy.why,
    )
    if isinstance(exact, str):
        check.reason = exact
        return check
    check.reason = _shape_faults(trial.output, exact)
    if not check.reason:
        check.tensors = [
            against_exact(key, tensor, exact[key]) for key, tensor in trial.output.items()
        ]
        check.reason = next(filter(None, (_inaccuracy(t, accuracy) for t in check.tensors)), "")
    check.state = State.FAILED if check.reason else State.PASSED
    return check


def _shape_faults(found: Outputs, exact: Outputs) -> str:
    if found.keys() != exact.keys():
        return f"outputs {_keys(found)} and those of the reference {_keys(exact)}"
    for key, tensor in found.items():
        if tensor.shape != exact[key].shape:
            shapes = f"{list(tensor.shape)} against {list(exact[key].shape)} of the reference"
            return outputs.named(key) + shapes
    return ""


def _inaccuracy(found: ReferenceError, accuracy: Bound | None) -> str:
    if found.nonfinite_mismatches:
        many = f"NaN or infinite on one side only: {found.nonfinite_mismatches} elements"
        return f"{outputs.named(found.name)}{many}"
    if accuracy is not None and not found.over_floor <= accuracy.value:
        size = f"error over floor {found.over_floor:.4g} exceeds {accuracy.value:.4g}"
        return f"{outputs.named(found.name)}{size} ({accuracy.why})"
    return ""


def check_certificate(case: Case, name: str, trial: Trial) -> CertificateCheck:
    """The certificate that the endpoint names, on its output and fresh inputs."""
    assert trial.endpoint.certificate is not None
    check = CertificateCheck(case=case.name, endpoint=name, state=State.FAILED)
    try:
        judged = trial.endpoint.certificate(trial.output, trial.inputs())
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        check.reason = f"the certificate did not run: {error!r}"
        return check
    found = judged.certificate
    check.outcome, check.op, check.arithmetic = str(found.outcome), found.op, found.arithmetic
    check.rows_judged, check.rows = judged.rows, judged.total
    check.reasons, check.numbers = list(found.reasons), dict(found.numbers)
    states = {Outcome.EXPLAINED: State.PASSED, Outcome.PRECISION: State.DIFFERENT}
    check.state = states.get(found.outcome, State.FAILED)
    if check.state is not State.PASSED:
        check.reason = f"{found.outcome}: {found.reasons[0] if found.reasons else found.arithmetic}"
    return check


def check_relation(
    spec: EndpointSpec, case: Case, name: str, trial: Trial, relation: Relation
) -> RelationCheck:
    """All trials of one relation; the first that breaks it decides."""
    check = RelationCheck(
        case=case.name,
        endpoint=name,
        relation=relation.name,
        declared=_declared(relation),
        state=State.NOT_RUN,
    )
    try:
        for pair in _pairs(relation, trial):
            check.trials += 1
            _add_trial(check, pair, relation, spec.axes)
            if check.reason:
                check.state = State.DIFFERENT
                return check
        check.state = State.PASSED if check.trials else State.NOT_RUN
        check.reason = "" if check.trials else "the relation tried nothing"
    except CannotRun as error:
        check.reason = error.what
    except (DidNotRun, RelationBroken) as error:
        check.state, check.reason = State.FAILED, error.what
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        check.state, check.reason = State.FAILED, f"the relation did not run: {error!r}"
    return check


def _pairs(relation: Relation, trial: Trial) -> Iterable[Pair]:
    if relation.run is not None:
        return relation.run(trial)
    assert relation.transform is not None
    return [Pair(trial.output, trial.call(relation.transform(trial.inputs())))]


def _declared(relation: Relation) -> str:
    kind = relation.kind
    return f"relative L2 at most {kind.value:.3g}: {kind.why}" if isinstance(kind, Bound) else kind


def _add_trial(check: RelationCheck, pair: Pair, relation: Relation, axes: Any) -> None:
    """Measure one trial, and say in ``check.reason`` how it breaks the relation, if it does."""
    tensors, fault = compare(pair.expected, pair.found, axes)
    largest = max((t.relative_l2 for t in tensors), default=0.0)
    broken = fault or next(filter(None, (_breaks(t, relation) for t in tensors)), "")
    if broken or largest >= max((t.relative_l2 for t in check.tensors), default=0.0):
        check.tensors = tensors
    check.reason = f"{pair.what}: {broken}" if broken and pair.what else broken


def _breaks(found: TensorDifference, relation: Relation) -> str:
    if found.equal:
        return ""
    bound = relation.kind
    if not isinstance(bound, Bound) or found.nonfinite_mismatches:
        return differing(found)
    if found.relative_l2 <= bound.value:
        return ""
    size = f"relative L2 {found.relative_l2:.3g} exceeds {bound.value:.3g}"
    return f"{outputs.named(found.name)}{size} ({bound.why})"


def check_pair(
    spec: EndpointSpec,
    case: Case,
    names: tuple[str, str],
    ran: dict[str, Trial],
    found: Sequence[Check],
) -> PairCheck:
    """The outputs of two endpoints; ``found`` holds the certificates that may explain them."""
    check = PairCheck(case=case.name, a=names[0], b=names[1], state=State.NOT_RUN)
    missing = [name for name in names if name not in ran]
    if missing:
        check.reason = f"not compared: {' and '.join(missing)} gave no output"
        return check
    check.tensors, fault = compare(ran[names[0]].output, ran[names[1]].output, spec.axes)
    other = [each for each in check.tensors if not each.equal]
    check.reason = fault or next((differing(each) for each in other), "")
    if not check.reason:
        check.state = State.PASSED
        return check
    check.state = State.DIFFERENT
    judged = [c for c in found if isinstance(c, CertificateCheck) and c.endpoint in names]
    if not fault and len(judged) == 2 and all(each.explains_every_row for each in judged):
        check.state = State.EXPLAINED
        sides = " and ".join(dict.fromkeys(each.arithmetic for each in judged))
        check.reason += f"; every row of both is explained by its declared rounding ({sides})"
    return check


def compare(a: Outputs, b: Outputs, axes: Any) -> tuple[list[TensorDifference], str]:
    """Differences of all outputs, and why some could not be compared."""
    if a.keys() != b.keys():
        return [], f"outputs {_keys(a)} against {_keys(b)}"
    found: list[TensorDifference] = []
    for key, tensor in a.items():
        if fault := mismatch(tensor, b[key]):
            return found, outputs.named(key) + fault
        names = axes if isinstance(axes, str) else axes.get(key, "")
        found.append(difference(key, tensor, b[key], names))
    return found, ""


def differing(found: TensorDifference) -> str:
    """One clause on a difference."""
    many = f"{found.differing_elements} of {found.elements} elements differ in their bits"
    largest = f"largest {found.ulp_max} ULP"
    if found.ulps.incomparable:
        largest = f"{found.ulps.incomparable} with NaN on one side"
    return f"{outputs.named(found.name)}{many} ({largest})"


def _keys(found: Outputs) -> str:
    return ", ".join(found) or "of one tensor"
