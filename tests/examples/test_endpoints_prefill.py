"""The prefill example runs on its named routes, and is as accurate as its kernels declare."""

from pathlib import Path

import pytest
import torch

from verify.endpoints import compare_endpoints, load_spec
from verify.endpoints.result import CertificateCheck, PairCheck, RunCheck, State

EXAMPLE = Path(__file__).parents[2] / "examples" / "endpoints_prefill.py"


def _compare(cases):
    """Everything but the comparison of bits passes; which routes ran, by endpoint."""
    result = compare_endpoints(load_spec(str(EXAMPLE)), cases=cases)
    checks = result.checks
    wrong = [c for c in checks if not isinstance(c, PairCheck) and c.state is not State.PASSED]
    assert not wrong, [(c.case, c.endpoint, c.reason) for c in wrong]
    assert {c.outcome for c in checks if isinstance(c, CertificateCheck)} == {"EXPLAINED"}
    assert result.exit_code == 1  # other orders of summation
    return {c.endpoint: {r["route"] for r in c.routes} for c in checks if isinstance(c, RunCheck)}


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="states the CPU route")
def test_prefill_example_on_the_cpu():
    oracle = {"cpu_replay_oracle"}
    routes = _compare("zero_mean")
    assert routes == {"prefill": oracle, "prefill_split_p": oracle, "sdpa": set()}


@pytest.mark.gpu
def test_prefill_example_on_a_gpu():
    routes = _compare("queries=64")
    assert all(ran == ({name} if name != "sdpa" else set()) for name, ran in routes.items())
    assert {"prefill", "prefill_split_p", "sdpa"} <= routes.keys()
