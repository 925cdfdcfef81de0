"""The model against outputs read off a V100, an A100 and an H100, and the rivals against them.

The rows come from the repository north-numerical-computing/MATLAB-tensor-core and are not part of
this one: they are looked for in a folder ``shared/data/tensor-core`` beside the checkout, or under
$VERIFY_SHARED_DATA.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verify.formats import decode, encode
from verify.reference.tensor_core import Unit, dot_rows, get_unit
from verify.reference.tensor_core.exact_step import Hypothesis, chain

ROWS = 5000


def find_data() -> Path | None:
    root = Path(__file__).parents[2]
    named = os.environ.get("VERIFY_SHARED_DATA")
    for base in [Path(named)] if named else [root.parent / "shared", root / "shared"]:
        for folder in (base, base / "data" / "tensor-core"):
            if (folder / "a_V100_fp16.txt").is_file():
                return folder
    return None


DATA = find_data()
pytestmark = pytest.mark.skipif(
    DATA is None,
    reason="no hardware rows: put MATLAB-tensor-core's files in ../shared/data/tensor-core or "
    "name their folder in $VERIFY_SHARED_DATA",
)


@dataclass(frozen=True)
class Gpu:
    """Words of one data set: a, b float16 [rows, L]; c float32 [rows]; d in both output formats."""

    a: Any
    b: Any
    c: Any
    d: Any
    d_float16: Any


@functools.cache
def load(gpu: str) -> Gpu:
    assert DATA is not None

    def words(name: str, base: int) -> Any:
        lines = (DATA / f"{name}.txt").read_text().splitlines()
        return np.array([[int(x, base) for x in line.split()] for line in lines], np.uint32)

    def narrow(float32: Any) -> Any:
        """The float16 that the file writes as a float32."""
        result = encode(decode(float32, "float32"), "float16")
        assert np.array_equal(decode(result, "float16"), decode(float32, "float32"))
        return result

    operands = [narrow(words(f"{name}_{gpu}_fp16", 16)) for name in "ab"]
    c, d, d_float16 = (
        words(f"{name}_{gpu}_{kind}", 2)[:, 0]
        for name, kind in (("c", "fp32"), ("d", "fp32"), ("d", "fp16"))
    )
    return Gpu(*operands, c, d, narrow(d_float16))


UNITS = [("V100", "sm_70"), ("A100", "sm_80"), ("H100", "sm_90")]


@pytest.mark.parametrize(("gpu", "architecture"), UNITS)
def test_every_row_bit_for_bit(gpu: str, architecture: str) -> None:
    data = load(gpu)
    unit = get_unit(architecture)
    assert data.a.shape == (ROWS, unit.products)
    assert np.array_equal(dot_rows(data.a, data.b, data.c, unit), data.d)


@pytest.mark.parametrize(("gpu", "architecture"), UNITS)
def test_every_row_of_the_float16_output(gpu: str, architecture: str) -> None:
    """The instruction with float16 accumulators, given c rounded to float16."""
    data = load(gpu)
    unit = get_unit(architecture, output="float16")
    c = encode(decode(data.c, "float32"), "float16")
    assert np.array_equal(dot_rows(data.a, data.b, c, unit), data.d_float16)
    # Rounding the float32 output afterwards is another arithmetic.
    rounded = encode(decode(data.d, "float32"), "float16")
    assert np.count_nonzero(rounded != data.d_float16) > 400


@pytest.mark.parametrize(("gpu", "architecture"), UNITS)
def test_the_neighbouring_units_fail(gpu: str, architecture: str) -> None:
    """In the fast model: one fraction bit more or less, half the products in a step."""
    data = load(gpu)
    right = get_unit(architecture)
    rivals = [(right.products, right.fraction_bits + 1), (right.products // 2, right.fraction_bits)]
    if right.fraction_bits > 23:
        rivals.append((right.products, right.fraction_bits - 1))
    for products, fraction_bits in rivals:
        wrong = dot_rows(data.a, data.b, data.c, Unit(products, fraction_bits)) != data.d
        assert np.count_nonzero(wrong) > 400


def hypotheses(unit: Unit) -> dict[str, Hypothesis]:
    length, bits = unit.products, unit.fraction_bits
    return {
        "one fraction bit less": Hypothesis(length, bits - 1),
        "one fraction bit more": Hypothesis(length, bits + 1),
        "exact alignment": Hypothesis(length, None),
        "normalised products": Hypothesis(length, bits, normalise_products=True),
        "c added late": Hypothesis(length, bits, late_accumulator=True),
        "rounding to nearest": Hypothesis(length, bits, final="nearest_even"),
        "two steps of half the length": Hypothesis(length // 2, bits),
        "four steps of a quarter": Hypothesis(length // 4, bits),
    }


def mismatches(data: Gpu, hypothesis: Hypothesis, rows: int = ROWS) -> int:
    a, b = (decode(words[:rows], "float16").tolist() for words in (data.a, data.b))
    c, d = decode(data.c[:rows], "float32").tolist(), data.d[:rows].tolist()
    return sum(chain(*row, hypothesis) != seen for *row, seen in zip(a, b, c, d, strict=True))


@pytest.mark.parametrize(("gpu", "architecture"), UNITS)
def test_the_exact_model_agrees_and_every_rival_fails(gpu: str, architecture: str) -> None:
    """The least that any rival misses by is 412 of all 5000 rows (8 %); 2000 rows are enough."""
    data = load(gpu)
    unit = get_unit(architecture)
    assert mismatches(data, Hypothesis(unit.products, unit.fraction_bits)) == 0
    missed = {name: mismatches(data, rival, 2000) for name, rival in hypotheses(unit).items()}
    assert min(missed.values()) > 100, missed
