"""The prefill example runs on its named route, and is as accurate as FP16 probabilities allow."""

from pathlib import Path

import pytest
import torch

from verify.endpoints import compare_endpoints, load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "endpoints_prefill.py"


@pytest.mark.skipif(torch.cuda.is_available(), reason="states the CPU route")
def test_prefill_example_on_the_cpu():
    checks = compare_endpoints(load_spec(str(EXAMPLE)))
    assert not [c for c in checks if c.check != "pair" and c.failure]
    runs = [c for c in checks if c.endpoint == "prefill" and c.check == "run"]
    assert [c.figures["routes"] for c in runs] == [["cpu_replay_oracle"]] * 2
    errors = [c.figures["error_over_floor"] for c in checks if c.check == "reference"]
    assert max(errors) < 2.0  # sqrt(2) by theory for rounded probabilities; few heads scatter
