"""Every way in which a comparison can fail is planted and seen; equal endpoints pass."""

import math

import pytest
import torch

from verify.bounds import Bound
from verify.endpoints import Case, Endpoint, EndpointSpec, Relation, compare_endpoints
from verify.endpoints.certificates import Judgement
from verify.endpoints.result import PairCheck, State
from verify.errors import ArgumentError
from verify.gpu.route import RouteRecord, record
from verify.reference.certificates.result import Check, Outcome, conclude


def _make():
    x = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(1)).half()
    return {"x": x}


def _double(x):
    return x * 2


def _one_ulp(x):
    y = x * 2
    y.view(torch.int16)[2, 1, 5] += 1
    return y


def _nan(x):
    y = x * 2
    y[0, 0, 0] = float("nan")
    return y


def _raises(x):
    raise RuntimeError("planted")


def _on_wmma(x):
    record(RouteRecord("double", "wmma", "cpu"))
    return x * 2


def _compare(other, *, route=None, relations=(), reference=lambda x: x.double() * 2, **options):
    spec = EndpointSpec(
        endpoints={"a": Endpoint(_double), "b": Endpoint(other, route, **options)},
        cases=[Case("one", _make)],
        reference=reference,
        relations=relations,
        axes="t h d",
    )
    return compare_endpoints(spec)


def _pair(result):
    return next(check for check in result.checks if isinstance(check, PairCheck))


def _states(result, endpoint="b"):
    return {type(c).__name__: c.state for c in result.checks if c.endpoint == endpoint}


def test_equal_endpoints_pass():
    result = _compare(_double, relations=[Relation("repeat", "bitwise", lambda inputs: inputs)])
    assert result.exit_code == 0
    assert {check.state for check in result.checks} == {State.PASSED}
    assert result.summary == "7 checks of 1 case and 2 endpoints: 7 passed"


def test_one_ulp_is_located_and_counted():
    result = _compare(_one_ulp)
    (tensor,) = _pair(result).tensors
    assert result.exit_code == 1 and _pair(result).state is State.DIFFERENT
    assert tensor.first == [2, 1, 5] and tensor.differing_elements == 1 and tensor.ulp_max == 1
    assert tensor.support == "position 2 of 4; head 1 of 3, channel 5 of 8"
    assert tensor.ulps.counts == [95, 1] and tensor.relative.equal == 95


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (_raises, "did not run: RuntimeError('planted')"),
        (lambda x: 3, "gave int, not a tensor"),
        (lambda x: (), "gave an empty tuple, not a tensor"),
        (lambda x: {"y": x, "z": None}, "gave NoneType as output z, not a tensor"),
        (lambda x: x.to_sparse(), "gave dtype float16, torch.sparse_coo"),
    ],
)
def test_an_endpoint_that_gives_nothing_fails_and_its_pair_is_not_compared(other, reason):
    result = _compare(other)
    run = next(c for c in result.checks if c.endpoint == "b")
    assert run.state is State.FAILED and reason in run.reason
    assert _pair(result).state is State.NOT_RUN and "b gave no output" in _pair(result).reason
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("other", "route", "found"),
    [
        (_double, "wmma", "ran on no recorded route, not on wmma"),
        (_on_wmma, "mma", "ran on wmma, not on mma"),
    ],
)
def test_another_route_than_named_fails(other, route, found):
    result = _compare(other, route=route)
    assert found in [c.reason for c in result.checks] and result.exit_code == 1


def test_the_named_route_passes_and_is_on_record():
    result = _compare(_on_wmma, route="wmma")
    run = next(c for c in result.checks if c.endpoint == "b")
    assert result.exit_code == 0 and [r["route"] for r in run.routes] == ["wmma"]


def test_nan_fails_against_the_reference_and_has_no_ulp_distance():
    result = _compare(_nan)
    states = _states(result)
    assert states["ReferenceCheck"] is State.FAILED
    assert _pair(result).tensors[0].nonfinite_mismatches == 1
    assert _pair(result).tensors[0].ulps.incomparable == 1
    assert next(c for c in result.checks if c.endpoint == "b").outputs[0].nan == 1


def test_overflow_that_the_format_demands_is_no_mismatch():
    def overflows(x):
        return x.float().mul(1e5).half()

    spec = EndpointSpec(
        endpoints={"a": Endpoint(overflows), "b": Endpoint(overflows)},
        cases=[Case("one", _make)],
        reference=lambda x: x.double() * 1e5,
    )
    result = compare_endpoints(spec)
    assert result.exit_code == 0
    assert _pair(result).tensors[0].shape == [4, 3, 8]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (lambda x: x * 2, "gave float16, wanted float64"),
        (lambda x: x.double()[:2], "[4, 3, 8] against [2, 3, 8] of the reference"),
        (lambda x: {"y": x.double()}, "outputs of one tensor and those of the reference y"),
        (_raises, "the reference did not run"),
    ],
)
def test_a_reference_that_does_not_fit_fails(reference, reason):
    result = _compare(_double, reference=reference)
    assert result.exit_code == 1
    assert all(reason in c.reason for c in result.of(State.FAILED))


def test_error_over_floor_is_held_to_what_is_declared():
    limit = Bound(1.0, "one rounding")
    assert _compare(_double, accuracy=limit).exit_code == 0  # exact: 0 over a floor of 0

    def truncated(x):
        return (x.float() * 2 * (1 + 2**-9)).half()

    result = _compare(truncated, accuracy=limit)
    check = next(c for c in result.checks if c.state is State.FAILED)
    assert check.tensors[0].over_floor == math.inf and "(one rounding)" in check.reason


@pytest.mark.parametrize("kind", ["bitwise", Bound(1e-3, "far below the planted factor")])
def test_broken_relation_differs(kind):
    broken = Relation("scaled", kind, lambda inputs: {"x": inputs["x"] * 1.5})
    result = _compare(_double, relations=[broken])
    assert len(result.of(State.DIFFERENT)) == 2 and result.exit_code == 1


def test_a_bounded_relation_admits_what_its_bound_admits_but_no_nan():
    near = Relation("near", Bound(1e-2, "planted"), lambda i: {"x": _one_ulp(i["x"] / 2)})
    assert _compare(_double, relations=[near]).exit_code == 0
    nan = Relation("nan", Bound(1e9, "anything finite"), lambda i: {"x": _nan(i["x"])})
    assert _compare(_double, relations=[nan]).exit_code == 1


def test_several_outputs_are_compared_by_name():
    def pair(x):
        return {"low": x * 2, "high": _one_ulp(x)}

    def other(x):
        return {"low": x * 2, "high": x * 2}

    spec = EndpointSpec(
        endpoints={"a": Endpoint(pair), "b": Endpoint(other)}, cases=[Case("one", _make)],
        axes={"high": "t h d"},
    )  # fmt: skip
    low, high = _pair(compare_endpoints(spec)).tensors
    assert low.equal and low.axes == "axis0 axis1 axis2"
    assert high.support == "position 2 of 4; head 1 of 3, channel 5 of 8"


def test_outputs_of_other_names_or_shapes_differ():
    assert "outputs of one tensor against 0, 1" in _pair(_compare(lambda x: (x, x))).reason
    found = _pair(_compare(lambda x: x[:2], reference=None))
    assert found.reason == "float16 [4, 3, 8] against float16 [2, 3, 8]"
    assert found.state is State.DIFFERENT


def _judged(passed, rows, total):
    check = Check(
        name="c", statistic=0.0, limit=Bound(1.0, "test"), passed=passed, if_broken=Outcome.DEFECT
    )
    return lambda out, inputs: Judgement(conclude("double", "declared", [check]), rows, total)


@pytest.mark.parametrize(
    ("passed", "rows", "state", "code"),
    [
        (True, None, State.EXPLAINED, 0),
        (True, 12, State.EXPLAINED, 0),
        (True, 11, State.DIFFERENT, 1),  # a sample cannot speak for the rows that it left out
        (False, None, State.DIFFERENT, 1),
    ],
)
def test_certificates_of_every_row_explain_a_difference(passed, rows, state, code):
    judge = _judged(passed, rows, 12)
    spec = EndpointSpec(
        endpoints={
            "a": Endpoint(_double, certificate=judge),
            "b": Endpoint(_one_ulp, certificate=judge),
        },
        cases=[Case("one", _make)],
    )
    result = compare_endpoints(spec)
    assert _pair(result).state is state and result.exit_code == code


def test_one_certificate_alone_explains_nothing():
    result = _compare(_one_ulp, certificate=_judged(True, None, 12))
    assert _pair(result).state is State.DIFFERENT


def test_a_certificate_that_raises_fails():
    result = _compare(_double, certificate=lambda out, inputs: 1 / 0)
    assert "ZeroDivisionError" in result.of(State.FAILED)[0].reason


def test_cases_are_selected_by_text():
    spec = EndpointSpec(
        endpoints={"a": Endpoint(_double), "b": Endpoint(_double)},
        cases=[Case("long biased", _make), Case("short", _make)],
    )
    assert compare_endpoints(spec, cases="bias").cases == ["long biased"]
    with pytest.raises(ArgumentError, match="no case is selected"):
        compare_endpoints(spec, cases="nowhere")


def test_a_case_that_cannot_be_made_fails():
    spec = EndpointSpec(
        endpoints={"a": Endpoint(_double), "b": Endpoint(_double)},
        cases=[Case("one", lambda: {"x": torch.load("nowhere", weights_only=True)})],
    )
    result = compare_endpoints(spec)
    assert result.exit_code == 1 and "cannot be made" in result.checks[0].reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"endpoints": {"a": Endpoint(_double)}}, "too few endpoints"),
        ({"cases": []}, "no cases"),
        ({"cases": [Case("one", _make)] * 2}, "two of one case name"),
        ({"relations": [Relation("r", "bitwise", dict, endpoints=["c"])]}, "not there"),
    ],
)
def test_specs_that_mean_nothing_are_refused(change, message):
    whole = {
        "endpoints": {"a": Endpoint(_double), "b": Endpoint(_double)},
        "cases": [Case("one", _make)],
    }
    with pytest.raises(ArgumentError, match=message):
        EndpointSpec(**(whole | change))


def test_relations_that_mean_nothing_are_refused():
    with pytest.raises(ArgumentError, match="a transform or a run"):
        Relation("both", "bitwise", dict, run=lambda trial: [])
    with pytest.raises(ArgumentError, match="bitwise or bounded"):
        Relation("loose", 1e-3, dict)
