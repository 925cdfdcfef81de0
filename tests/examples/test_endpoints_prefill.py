"""The prefill example runs on its named route, and is as accurate as FP16 probabilities allow."""

from pathlib import Path

import pytest
import torch

from verify.endpoints import compare_endpoints, load_spec
from verify.endpoints.result import PairCheck, ReferenceCheck, RunCheck, State

EXAMPLE = Path(__file__).parents[2] / "examples" / "endpoints_prefill.py"


@pytest.mark.skipif(torch.cuda.is_available(), reason="states the CPU route")
def test_prefill_example_on_the_cpu():
    checks = compare_endpoints(load_spec(str(EXAMPLE))).checks
    assert not [c for c in checks if not isinstance(c, PairCheck) and c.state is not State.PASSED]
    runs = [c for c in checks if isinstance(c, RunCheck) and c.endpoint == "prefill"]
    assert [c.routes[0]["route"] for c in runs] == ["cpu_replay_oracle"] * 2
    errors = [c.tensors[0].over_floor for c in checks if isinstance(c, ReferenceCheck)]
    assert max(errors) < 2.0  # sqrt(2) by theory for rounded probabilities; few heads scatter
