"""The same E4M3 bytes read in two ways: the comparison shows the gap, and only where there is one.

A bridge rounds ``code * scale`` to FP16 before the scores; a decode step applies the scale to the
scores. Everything else is float64 here, so that this rounding is all that differs.
"""

import pytest
import torch

from verify.endpoints import Endpoint, EndpointSpec, compare_endpoints
from verify.endpoints.cases import lattice
from verify.endpoints.result import PairCheck, ReferenceCheck, State


def make(point):
    codes = point.integers("codes", 0, 0x70, 2, 48, 32).to(torch.uint8)  # finite and positive
    return {"q": point.draw("q", 4, 32), "codes": codes, "scale": point.scale}


def _values(codes):
    return codes.view(torch.float8_e4m3fn).double()


def before(q, codes, scale):
    k, v = ((_values(c).float() * torch.tensor(scale)).half().double() for c in codes)
    return ((q.double() @ k.T / 128).softmax(-1) @ v).half()


def after(q, codes, scale, store=torch.float16):
    k, v = (_values(c) for c in codes)
    ks = float(torch.tensor(scale))
    return ((q.double() @ k.T * ks / 128).softmax(-1) @ v * ks).to(store)


def exact(q, codes, scale):
    return after(q, codes, scale, torch.float64)


@pytest.fixture(scope="module")
def result():
    return compare_endpoints(
        EndpointSpec(
            endpoints={"after": Endpoint(after), "before": Endpoint(before)},
            cases=lattice(make, scales=[1.0, 0.5, 0.0625, 0.3, 0.0137]),
            reference=exact,
            axes="t d",
        )
    )


def test_exact_scales_give_equal_bits_and_others_do_not(result):
    pairs = [check for check in result.checks if isinstance(check, PairCheck)]
    equal = {pair.case.split("scale=")[1].split()[0]: pair.state for pair in pairs}
    assert equal == {
        "1": State.PASSED, "0.5": State.PASSED, "0.0625": State.PASSED,
        "0.3": State.DIFFERENT, "0.0137": State.DIFFERENT,
    }  # fmt: skip


def test_the_reading_that_rounds_early_is_further_from_fp64(result):
    errors = {
        (check.case, check.endpoint): check.tensors[0].over_floor
        for check in result.checks
        if isinstance(check, ReferenceCheck)
    }
    for scale in ("0.3", "0.0137"):
        case = next(case for case, _ in errors if f"scale={scale} " in case)
        assert errors[case, "after"] == 1.0 < errors[case, "before"]
