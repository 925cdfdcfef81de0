"""Taps below modules are replayed like others: one operation is told from those behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.planted_ops import one_weight_lost, planted_softmax
from tests.support.toy_pairs import Side, pair
from verify.bisect.run import bisect
from verify.replay.checker import checker
from verify.replay.result import Status
from verify.replay.run import Models, replay

ATTENTION = "model.layers.1.self_attn"
OPTIONS = {"ops": ("model.layers.1.self_attn:aten.*",), "threads": 1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_only_the_faulty_operation_adds_something(tmp_path: Path) -> None:
    sound = Side(
        attn="eager", options=OPTIONS, plant=lambda model: planted_softmax(one_weight_lost, -1)
    )
    faulty = Side(
        attn="eager", options=OPTIONS, plant=lambda model: planted_softmax(one_weight_lost, 1)
    )
    a, b = pair(tmp_path, sound, faulty, tokens=2)
    found = replay(a.dump, b.dump, Models(a.implementation, b.implementation))
    below = {tap.tap: tap for tap in found.taps if "/" in tap.tap}
    softmax = below.pop(f"{ATTENTION}/aten._softmax#0.out")
    assert (softmax.local_rows, softmax.status) == (1, Status.UNCHECKED)
    assert {tap.status for tap in below.values()} == {Status.INHERITED}
    assert f"{ATTENTION}/aten.bmm#1.out" in below
    result = bisect(a.dump, b.dump, checkers=[checker(found, a.dump, b.dump)])
    assert result.origins[0].tap == softmax.tap
