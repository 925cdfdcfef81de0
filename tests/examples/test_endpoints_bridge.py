"""The bridge example: equal bits at every scale, and under page permutation."""

from pathlib import Path

from verify.endpoints import compare_endpoints, load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "endpoints_bridge.py"


def test_bridge_example_is_equal_to_the_bit():
    result = compare_endpoints(load_spec(str(EXAMPLE)))
    assert len(result.checks) == 15  # of each scale: two runs, two relations, one pair
    assert result.exit_code == 0
