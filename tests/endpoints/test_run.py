"""Planted faults fail, and equal endpoints pass."""

import pytest
import torch

from verify.bounds import Bound
from verify.endpoints import Case, Endpoint, EndpointSpec, Relation, compare_endpoints


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


def _checks(other, route=None, relations=()):
    spec = EndpointSpec(
        endpoints={"a": Endpoint(_double), "b": Endpoint(other, route)},
        cases=[Case("one", _make)],
        reference=lambda x: x.double() * 2,
        relations=relations,
    )
    return compare_endpoints(spec)


def test_equal_endpoints_pass():
    repeat = Relation("repeat", "bitwise", lambda inputs: inputs)
    assert not [c for c in _checks(_double, relations=[repeat]) if c.failure]


@pytest.mark.parametrize("other", [_one_ulp, _nan, _raises])
def test_planted_fault_fails(other):
    assert next(c for c in _checks(other) if c.check == "pair").failure


def test_one_ulp_is_located():
    pair = _checks(_one_ulp)[-1]
    assert pair.figures["support"] == [[2], [1], [5]]
    assert pair.figures["ulp_histogram"] == {"1": 1}


def test_wrong_route_fails():
    assert "not on" in next(c for c in _checks(_double, "wmma") if c.endpoint == "b").failure


@pytest.mark.parametrize("kind", ["bitwise", Bound(1e-3, "far below the planted factor")])
def test_broken_relation_fails(kind):
    broken = Relation("scaled", kind, lambda inputs: {"x": inputs["x"] * 1.5})
    assert all(c.failure for c in _checks(_double, relations=[broken]) if "scaled" in c.check)
