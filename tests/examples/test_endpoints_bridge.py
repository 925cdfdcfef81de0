"""The bridge example: equal bits at every scale, and every declared relation holds."""

from pathlib import Path

import pytest
import torch

from verify.endpoints import compare_endpoints, load_spec
from verify.endpoints.result import RunCheck, State

EXAMPLE = Path(__file__).parents[2] / "examples" / "endpoints_bridge.py"


def _compare(checks):
    result = compare_endpoints(load_spec(str(EXAMPLE)), cases="len=96")
    assert len(result.checks) == 3 * checks  # of each scale
    assert result.exit_code == 0, result.summary
    assert {check.state for check in result.checks} == {State.PASSED}
    runs = [c for c in result.checks if isinstance(c, RunCheck) and c.endpoint == "bridge"]
    return {route["route"] for run in runs for route in run.routes}


@pytest.mark.skipif(torch.cuda.is_available(), reason="states the CPU route")
def test_bridge_example_is_equal_to_the_bit():
    # One pair; of either endpoint a run, a reference, a certificate and four relations.
    assert _compare(1 + 2 * 7) == {"cpu_replay_oracle"}


@pytest.mark.gpu
def test_bridge_example_on_a_gpu():
    assert _compare(1 + 2 * 9) == {"e4m3_bridge"}  # two streams and graph replay as well
