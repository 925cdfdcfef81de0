"""Growth along taps and positions, and the map of both."""

import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun
from tests.support.toy_runs import Toy, record
from verify.bisect.growth import by_position, growth, heatmaps
from verify.bisect.taps import is_residual, layer_of, without_layer
from verify.compare.run import compare_rows

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}


def shifted(tmp_path, fault):
    a = record(tmp_path / "a", Toy(PROMPT, tokens=1))
    return compare_rows(a, record(tmp_path / "b", Toy(PROMPT, tokens=1, faults=fault)))


def from_position_3(values, rows):
    values[3:] *= np.float32(1.25)
    return values


def test_growth_has_a_point_for_each_float_tap(tmp_path):
    compared = shifted(tmp_path, {"layers.1.out": from_position_3})
    points = growth(compared.comparison)
    assert [p.order for p in points] == sorted(p.order for p in points)
    assert {"tokens.in", "tokens.out"}.isdisjoint(p.tap for p in points)
    (changed,) = [p for p in points if p.tap == "layers.1.out"]
    assert (changed.layer, changed.differing_share) == (1, 0.5)


def test_positions_and_heatmap_hold_the_relative_difference_of_each_cell(tmp_path):
    compared = shifted(tmp_path, {"layers.1.out": from_position_3})
    # Scaling by 1.25 in float32 rounds by at most 2^-24 relative.
    sizes = [0.0] * 3 + [pytest.approx(0.25, rel=1e-6, abs=0)] * 3
    assert [p.relative_l2 for p in by_position(compared)] == sizes
    (chart,) = heatmaps(compared)
    assert chart.taps == ["layers.0.out", "layers.1.out"]
    assert chart.positions == list(range(6))
    assert chart.values == [[0.0] * 6, sizes]


def test_nan_on_one_side_is_infinitely_far_and_not_equal(tmp_path):
    def nan(values, rows):
        values[2] = np.nan
        return values

    compared = shifted(tmp_path, {"layers.1.out": nan})
    assert by_position(compared)[2].relative_l2 == np.inf
    assert heatmaps(compared)[0].values[1][2] == np.inf
    sizes = {point.tap: point.relative_l2 for point in growth(compared.comparison)}
    assert sizes["layers.1.out"] == np.inf


def test_cells_that_were_not_compared_are_none(tmp_path):
    dumps = []
    for side in "ab":
        with SyntheticRun(tmp_path / side, {"s": [1]}) as run, run.step():
            run.add("layers.0.out", np.ones((3, 2)))
            run.add("layers.1.out", np.ones((2, 2)))
        dumps.append(run.open())
    assert heatmaps(compare_rows(*dumps))[0].values == [[0.0] * 3, [0.0, 0.0, None]]


@pytest.mark.parametrize(
    ("tap", "layer", "shared", "residual"),
    [
        ("model.layers.12.out", 12, "model.layers.*.out", True),
        ("model.layers.3.mlp.out", 3, "model.layers.*.mlp.out", False),
        ("transformer.h.0.attn.attn.in.q", 0, "transformer.h.*.attn.attn.in.q", False),
        ("0.out", 0, "*.out", True),
        ("model.norm.in.0", None, "model.norm.in.0", False),
        ("model.embed_tokens.out.1", None, "model.embed_tokens.out.1", False),
    ],
)
def test_names_of_taps(tap, layer, shared, residual):
    assert (layer_of(tap), without_layer(tap), is_residual(tap)) == (layer, shared, residual)
