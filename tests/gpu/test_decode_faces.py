"""Decode on the CPU, its partition table, and what it refuses; no GPU needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.gpu.decode_steps import exact, make_step
from tests.gpu.helpers import measure, same_bits
from verify import gpu
from verify.bounds import Bound
from verify.gpu import errors
from verify.gpu.paged.decode import WAVES, most_partitions, partition_length

THRESHOLDS = [below + step for below, _ in WAVES[:-1] for step in (-1, 0, 1)]
RATIO = Bound(1.1, "P is FP32 and E4M3 is exact: only the final rounding is left")


def test_on_the_cpu_the_oracle_answers_and_says_so() -> None:
    step = make_step([100, 0, 65], page=64, device="cpu")
    with gpu.record_routes() as routes:
        out = step.run()
    assert [route.route for route in routes] == ["cpu_replay_oracle"]
    assert same_bits(out[1], torch.zeros_like(out[1]))
    for b in (0, 2):
        accuracy = measure(out[b], exact(step, b))
        assert RATIO.used_by(accuracy.ratio) <= 1.0, str(accuracy)


def test_partitions_follow_the_table() -> None:
    assert [partition_length(n) for n in (0, 12287, 12288, 98303, 98304, 196608, 262144)] == [
        64, 64, 256, 512, 896, 1664, 1664]  # fmt: skip
    assert most_partitions(262144) == 220  # 196607 keys in partitions of 896
    assert most_partitions(262144) == max(
        -(-n // partition_length(n)) for n in (*THRESHOLDS, 262144)
    )
    assert [below for below, _ in WAVES] == sorted({below for below, _ in WAVES})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"partition": 96}, errors.ShapeError, "multiple of 64"),
        ({"partition": -64}, errors.ShapeError, "multiple of 64"),
        ({"lengths": [10**6]}, errors.ShapeError, "does not fit its block table"),
        ({"scale": 0.0}, errors.SemanticsError, "positive finite"),
    ],
)
def test_what_is_outside_the_contract_is_refused(
    options: dict[str, object], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        make_step([100], page=64, device="cpu").run(**options)


def test_tensors_outside_the_contract_are_refused() -> None:
    step = make_step([100], page=64, device="cpu")
    rows = [
        (replace(step, q=step.q[:, :5].contiguous()), errors.ShapeError, "head counts"),
        (replace(step, q=step.q.float()), errors.DtypeError, "wrong dtype"),
        (replace(step, q=step.q.repeat(2, 1, 1)), errors.ShapeError, "wrong batch"),
        (replace(step, k=step.k[:, :40], v=step.v[:, :40]), errors.ShapeError, "page size"),
    ]
    for bad, error, message in rows:
        with pytest.raises(error, match=message):
            bad.run()
