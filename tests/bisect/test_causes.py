"""Settings that are known to change the very operation that differs are named beside it."""

import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun, Weight
from tests.support.toy_runs import Toy, record
from verify.bisect.run import bisect

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}


def reasons(a, b, tap):
    finding = next(f for f in bisect(a, b).findings if f.taps[:1] == [tap])
    return [reason for reason in finding.reasons if reason.startswith("known cause")]


def product(path, settings, wrong=()):
    """A prefill of three rows and two one-row steps of one product; some positions are off."""
    with SyntheticRun(path, {"s": [1, 2, 3]}, settings=settings, weights={"w": "1"}) as run:
        for positions in ([0, 1, 2], [3], [4]):
            with run.step():
                rows = [("s", p) for p in positions]
                x = run.add("x.out", [[p + 1.0, 2.0] for p in positions], rows=rows)
                values = [[p * 3.0 + 2**-20 * (p in wrong), 1.0] for p in positions]
                run.add("proj.out", values, rows=rows, inputs=[x, Weight("w")], ops=["aten.mm"])
    return run.open()


def aligned(tmp_path, b, wrong):
    return reasons(
        product(tmp_path / "a", {"weights_alignment": 64}),
        product(tmp_path / "b", {"weights_alignment": b}, wrong),
        "proj.out",
    )


def test_other_addresses_are_named_where_only_products_of_one_row_differ(tmp_path):
    (reason,) = aligned(tmp_path, 8, wrong=(3, 4))
    assert "aligned to 64 bytes in A, 8 in B" in reason
    assert reason.endswith("while 3 rows of calls of several rows are equal")


@pytest.mark.parametrize(
    ("b", "wrong"),
    [
        pytest.param(8, (1, 3, 4), id="a row of a longer call differs too"),
        pytest.param(16, (3, 4), id="the addresses agree modulo 16"),
        pytest.param(64, (3, 4), id="the addresses are as aligned"),
    ],
)
def test_they_are_not_named_where_they_cannot_be_it(tmp_path, b, wrong):
    assert aligned(tmp_path, b, wrong) == []


def test_threads_are_named_at_attention_and_not_at_a_copy(tmp_path):
    def off(values, rows):
        return np.nextafter(values, np.float32(np.inf))

    a = record(tmp_path / "a", Toy(PROMPT, settings={"threads": 1}))
    for number, (tap, named) in enumerate(
        [("layers.0.attn.out", True), ("layers.0.attn.in.v", False)]
    ):
        toy = Toy(PROMPT, settings={"threads": 2}, faults={tap: off})
        found = reasons(a, record(tmp_path / f"b{number}", toy), tap)
        assert any("threads, 1 in A and 2 in B" in reason for reason in found) is named


def test_calls_of_other_sizes_are_named(tmp_path):
    def off(values, rows):
        return np.nextafter(values, np.float32(np.inf))

    a = record(tmp_path / "a", Toy(PROMPT))
    b = record(tmp_path / "b", Toy(PROMPT, chunk=4, faults={"layers.0.attn.out": off}))
    (reason,) = reasons(a, b, "layers.0.attn.out")
    assert "other numbers of rows (6 in A, 2 in B)" in reason
