"""Case lattices: the same numbers everywhere, the kinds of data as declared, tensors from dumps."""

import numpy as np
import pytest
import torch

from tests.support.synthetic_dumps import SyntheticRun
from verify.endpoints.cases import DATA, Point, captured, draw_values, lattice
from verify.errors import ArgumentError


def build(point):
    return {"x": point.draw("x", point.length, point.shape["heads"]), "scale": 0.5}


def test_every_combination_once_with_names_that_tell_them_apart():
    cases = lattice(
        build, shapes=[{"heads": 1}, {"heads": 6}], lengths=[64, 128], data=DATA, seeds=[0, 1],
        scales=[1.0, 0.5], keep=lambda point: point.length == 64 or point.seed == 0,
    )  # fmt: skip
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) == 2 * (2 + 1) * 4 * 2
    assert names[0] == "heads=1 len=64 float16 zero_mean scale=1 seed=0"
    assert "heads=6 len=64 float16 spiked scale=0.5 seed=1" in names


def test_values_depend_on_seed_and_name_alone():
    def words(seed, name, data="zero_mean"):
        point = Point({}, 0, "float16", 1.0, data, seed)
        return point.draw(name, 4, 5).view(torch.int16).numpy().tobytes()

    assert words(0, "q") == words(0, "q")
    assert len({words(0, "q"), words(1, "q"), words(0, "k"), words(0, "q", "biased")}) == 4


def test_the_numbers_themselves_are_pinned():
    # Philox is specified; standard_normal is NumPy's, whose stream this test would see change.
    values = draw_values("0/q", (1000,), "zero_mean", 1.0)
    assert values[:2].tolist() == pytest.approx([0.9828433525950633, 1.2791136321216174], rel=1e-12)


@pytest.mark.parametrize(
    ("data", "mean", "largest"),
    [
        ("zero_mean", (-0.05, 0.05), (3.0, 6.0)),
        ("biased", (0.95, 1.05), (3.0, 7.0)),
        ("spiked", (-1.0, 1.0), (100.0, 600.0)),
    ],
)
def test_kinds_of_data(data, mean, largest):
    values = draw_values("1/v", (20000,), data, 65504.0)
    assert mean[0] < values.mean() < mean[1]
    assert largest[0] < np.abs(values).max() < largest[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn"])
def test_near_overflow_is_finite_and_two_of_a_sign_are_not(dtype):
    point = Point({}, 0, dtype, 1.0, "near_overflow", 0)
    values = point.draw("v", 512).double()
    largest = torch.finfo(getattr(torch, dtype)).max
    assert values.isfinite().all() and values.abs().max() <= largest
    assert values.abs().min() * 2 > largest and (values < 0).any() and (values > 0).any()


def test_scale_dtype_and_own_kind():
    point = Point({}, 0, "bfloat16", 0.5, "biased", 0)
    plain = point.draw("v", 5000, data="zero_mean", dtype="float32")
    assert plain.dtype == torch.float32 and abs(float(plain.std()) - 0.5) < 0.02
    assert point.draw("v", 3).dtype == torch.bfloat16
    assert point.integers("t", 2, 5, 100).unique().tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": ["nice"]}, "unknown kind of data"),
        ({"dtypes": ["float17"]}, "float17"),
        ({"keep": lambda point: False}, "a lattice without points"),
    ],
)
def test_lattices_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        lattice(build, **options)


@pytest.fixture
def dump(tmp_path):
    values = np.arange(6, dtype=np.float64).reshape(1, 3, 2)
    with SyntheticRun(tmp_path / "run", {"poem#0": [5, 3, 9]}) as run, run.step():
        run.add("tokens.in", [[5], [3], [9]], "b t", dtype="int64")
        run.add("embed.out", values[0], "b t d", dtype="bfloat16")
    return tmp_path / "run"


def test_captured_tensors_keep_their_bits_and_layout(dump):
    case = captured(dump, {"x": "embed.out"}, build=lambda inputs: inputs | {"scale": 2.0})
    inputs = case.make()
    assert inputs["scale"] == 2.0 and inputs["x"].dtype == torch.bfloat16
    assert inputs["x"].tolist() == [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]]
    inputs["x"].zero_()
    assert case.make()["x"].any()  # fresh each time
    assert case.name == "captured run step=0"


def test_a_tap_that_is_not_there_is_refused(dump):
    with pytest.raises(ArgumentError, match=r"does not hold that tap[\s\S]*verify inspect"):
        captured(dump, {"x": "nowhere.out"})
