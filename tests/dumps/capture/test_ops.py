"""Taps below the module: operations inside chosen modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.dump_reading import input_names, record_of, values_of
from tests.support.plain_models import Steps
from tests.support.planted_ops import one_weight_lost, planted_softmax
from tests.support.toy_model import toy_llama
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.dumps import capture
from verify.dumps.format import Dump, open_dump
from verify.dumps.format.schema import Input
from verify.errors import ArgumentError, ModelError

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 2, 6, 5, 3]])
ATTENTION = "model.layers.1.self_attn"
OPS = ["model.layers.1.self_attn:aten.*"]


def record_toy(path: Path, *, ops: list[str] = OPS, prefix: int = 5, **options: Any) -> Dump:
    """``prefix`` tokens at once, then the others one by one with the cache; eager attention."""
    model = toy_llama(attn="eager")
    with torch.no_grad(), capture(model, path, ops=ops, **options):
        cache = None
        for start, stop in [(0, prefix), *((at, at + 1) for at in range(prefix, 5))]:
            cache = model(IDS[:, start:stop], past_key_values=cache, use_cache=True).past_key_values
    return open_dump(path)


def record_steps(function: Callable[..., Any], path: Path, x: torch.Tensor, **options: Any) -> Dump:
    model = Steps(function)
    with torch.no_grad(), capture(model, path, **{"ops": ["*"], **options}):
        model(x)
    return open_dump(path)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("options", [{}, {"level": "digest"}, {"edges": "none", "level": "hash"}])
def test_a_fault_in_one_operation_is_found_there(tmp_path: Path, options: dict[str, Any]) -> None:
    with planted_softmax(one_weight_lost, call=-1):
        a = record_toy(tmp_path / "a", **options)
    with planted_softmax(one_weight_lost, call=1):
        b = record_toy(tmp_path / "b", **options)
    result = bisect(a, b)
    assert result.verdict is not Verdict.IDENTICAL
    origin = result.origins[0]
    assert origin.tap == f"{ATTENTION}/aten._softmax#0.out"
    assert origin.first is not None
    assert (origin.first.sequence, origin.first.position) == ("sequence#0", 4)
    assert origin.proven == ("edges" not in options)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_without_taps_below_it_only_the_core_is_known(tmp_path: Path) -> None:
    with planted_softmax(one_weight_lost, call=-1):
        a = record_toy(tmp_path / "a", ops=[])
    with planted_softmax(one_weight_lost, call=1):
        b = record_toy(tmp_path / "b", ops=[])
    assert bisect(a, b).origins[0].tap == f"{ATTENTION}.attn.out"


def test_inputs_and_outputs_of_an_operation(tmp_path: Path) -> None:
    dump = record_toy(tmp_path / "run")
    out = record_of(dump, f"{ATTENTION}/aten._softmax#0.out")
    assert (out.axes, out.shape, out.ops) == ("b h t d", [2, 4, 5, 5], ["aten._softmax"])
    assert out.attributes == {
        "op": "aten._softmax",
        "scalars": {"dim": -1, "half_to_float": False},
    }
    assert record_of(dump, f"{ATTENTION}/aten._softmax#0.in.0").kept == "same"
    assert input_names(dump, out) == {f"{ATTENTION}/aten.add#2.out"}  # the mask
    # Five float32 quotients of at most 1, each off by a few roundings of 2^-24.
    assert np.allclose(values_of(dump, out).reshape(2, 5, 4, 5).sum(-1), 1.0, atol=1e-6)
    scores = record_of(dump, f"{ATTENTION}/aten.bmm#0.out")
    assert (scores.axes, scores.shape) == ("b h t d", [2, 4, 5, 5])
    assert input_names(dump, scores) == {f"{ATTENTION}/aten.bmm#0.in.{i}" for i in (0, 1)}
    # The core returns the second product, copied into another layout.
    copied = record_of(dump, f"{ATTENTION}/aten.clone#3.out")
    assert record_of(dump, f"{ATTENTION}/aten.clone#3.in.0").inputs == [
        Input(kind="record", seq=record_of(dump, f"{ATTENTION}/aten.bmm#1.out").seq)
    ]
    assert input_names(dump, record_of(dump, f"{ATTENTION}.attn.out")) == {copied.tap}


def test_a_weight_is_named_and_not_recorded(tmp_path: Path) -> None:
    dump = record_toy(tmp_path / "run", ops=["*.q_proj"])
    tap = f"{ATTENTION}.q_proj/aten.mm#0"
    out = record_of(dump, f"{tap}.out")
    assert input_names(dump, out) == {f"{tap}.in.0", f"weight {ATTENTION}.q_proj.weight"}
    assert f"{tap}.in.1" not in {r.tap for r in dump.records()}


def test_rows_of_chunks_align_with_rows_of_the_whole(tmp_path: Path) -> None:
    ops = ["model.layers.0.mlp:aten.mul", "model.layers.*.input_layernorm:aten.*"]
    a = record_toy(tmp_path / "a", ops=ops, taps=["logits"])
    b = record_toy(tmp_path / "b", ops=ops, taps=["logits"], prefix=2)
    found = {place.tap: place for place in bisect(a, b).comparison.taps}
    product = found["model.layers.0.mlp/aten.mul#0.out"]
    assert product.rows == 10
    # Other chunks round differently: some ULP of values up to about 100.
    assert product.max_abs is not None and product.max_abs < 1e-3


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_rows_that_grow_with_the_cache_are_compared(tmp_path: Path) -> None:
    """A softmax has a value a key, so that the rows of one tap have several lengths."""
    ops = ["model.layers.1.self_attn:aten._softmax"]
    with planted_softmax(torch.neg, call=-1):
        a = record_toy(tmp_path / "a", ops=ops, prefix=3)
    with planted_softmax(torch.neg, call=0):  # in layer 0: layer 1 has other keys in all steps
        b = record_toy(tmp_path / "b", ops=ops, prefix=3)
    lengths = {r.row_length for r in a.records() if "/" in r.tap and r.kept == "full"}
    assert len(lengths) == 3
    found = {place.tap: place for place in bisect(a, b).comparison.taps}
    softmax = found[f"{ATTENTION}/aten._softmax#0.out"]
    # At position 0 there is one key, whose weight is 1 whatever it is.
    assert (softmax.rows, softmax.differing_rows) == (10, 8)


def test_loops_are_counted_within_a_call(tmp_path: Path) -> None:
    def twice(model: Steps, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = model.first(x.relu()).relu()
        return x

    dump = record_steps(twice, tmp_path / "run", torch.randn(1, 3, 4))
    taps = [(r.tap, r.occurrence) for r in dump.records() if "/" in r.tap and "out" in r.tap]
    assert taps == [
        ("/aten.relu#0.out", 0),
        ("first/aten.addmm#0.out", 0),
        ("/aten.relu#1.out", 0),
        ("/aten.relu#2.out", 0),
        ("first/aten.addmm#0.out", 1),
        ("/aten.relu#3.out", 0),
    ]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_in_place_operations_keep_what_was_there_before(tmp_path: Path, mode: Any) -> None:
    def add(model: Steps, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.add_(1.0)
        y.mul_(y)
        return model.first(y)

    model, x = Steps(add), torch.randn(1, 3, 4)
    with mode(), capture(model, tmp_path / "run", ops=["*"]):
        model(x)
    dump = open_dump(tmp_path / "run")
    x = x[0].double().numpy()
    for tap, expected in {
        "/aten.add_#0.in.0": x,
        "/aten.add_#0.out": x + 1,
        "/aten.mul_#0.in.0": x + 1,
        "/aten.mul_#0.in.1": x + 1,
        "/aten.mul_#0.out": (x + 1) ** 2,
    }.items():
        record = record_of(dump, tap)
        # A sum and a square in float32 of values below 16; a wrong state of the tensor is off by 1.
        assert np.allclose(values_of(dump, record), expected, atol=1e-5), tap
    # Under inference_mode torch does not take a linear layer apart.
    tap = "first/aten.addmm#0.in.1" if mode is torch.no_grad else "first/aten.linear#0.in.0"
    out = record_of(dump, tap)
    # As above.
    assert np.allclose(values_of(dump, out), (x + 1) ** 2, atol=1e-5)


@torch.library.custom_op("verifytest::fused_add_scale", mutates_args=("x", "residual"))
def fused_add_scale(x: torch.Tensor, residual: torch.Tensor, scale: float) -> None:
    residual += x
    x.copy_(residual * scale)


def test_an_operation_that_only_writes(tmp_path: Path) -> None:
    def fused(model: Steps, x: torch.Tensor) -> torch.Tensor:
        y, residual = x * 2, x * 3
        torch.ops.verifytest.fused_add_scale(y, residual, 0.5)
        return model.first(y + residual)

    x = torch.randn(1, 3, 4)
    dump = record_steps(fused, tmp_path / "run", x, ops=[":verifytest::*"])
    found = {r.tap: r for r in dump.records() if "/" in r.tap}
    stem, x = "/verifytest.fused_add_scale#0", x[0].double().numpy()
    assert {tap: values_of(dump, r).round(4).tolist() for tap, r in found.items()} == {
        f"{stem}.in.0": (2 * x).round(4).tolist(),
        f"{stem}.in.1": (3 * x).round(4).tolist(),
        f"{stem}.out.x": (2.5 * x).round(4).tolist(),
        f"{stem}.out.residual": (5 * x).round(4).tolist(),
    }
    assert found[f"{stem}.out.x"].attributes["scalars"] == {"scale": 0.5}


def test_views_and_unwritten_memory_only_by_name(tmp_path: Path) -> None:
    def views(model: Steps, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x).copy_(x.view(3, 4).t().t().view(1, 3, 4))
        return model.first(y)

    taps = {r.tap for r in record_steps(views, tmp_path / "a", torch.randn(1, 3, 4)).records()}
    assert {t for t in taps if t.startswith("/")} == {
        "/aten.copy_#0.in.0", "/aten.copy_#0.in.1", "/aten.copy_#0.out",
    }  # fmt: skip
    named = record_steps(views, tmp_path / "b", torch.randn(1, 3, 4), ops=[":aten.t"])
    assert "/aten.t#1.out" in {r.tap for r in named.records()}


def test_bits_do_not_change(tmp_path: Path) -> None:
    model = toy_llama(attn="eager")
    with torch.no_grad():
        plain = model(IDS).logits
        for number, options in enumerate([{}, {"edges": "none", "level": "hash"}]):
            with capture(model, tmp_path / str(number), ops=["*"], **options):
                assert torch.equal(model(IDS).logits, plain)


def test_digests_of_the_lean_capture_are_the_same(tmp_path: Path) -> None:
    full = record_toy(tmp_path / "a", prefix=3)
    lean = record_toy(tmp_path / "b", prefix=3, edges="none", level="hash")
    rows = {(r.step, r.tap): full.rows(r).digest for r in full.records() if "/" in r.tap}
    compared = 0
    for record in lean.records():
        if "/" in record.tap and len(rows[record.step, record.tap]):
            assert (lean.rows(record).digest == rows[record.step, record.tap]).all(), record.tap
            compared += 1
    assert compared > 30


def test_what_cannot_be_seen_is_said(tmp_path: Path) -> None:
    model = Steps(lambda model, x: model.second(model.first(x)))
    model.first = torch.compile(model.first)
    with pytest.raises(ModelError, match="no module of the model matches") as caught:
        capture(model, tmp_path / "a", ops=["first.*:aten.mm"])
    assert "torch.compile hides first" in str(caught.value)
    with torch.no_grad(), capture(model, tmp_path / "b", ops=["*", "second:aten.no_such"]):
        model(torch.randn(1, 3, 4))
    dump = open_dump(tmp_path / "b")
    assert dump.manifest.capture["opaque"] == ["first"]
    assert dump.manifest.capture["unmatched_taps"] == ["second:aten.no_such"]
    assert {r.tap.partition("/")[0] for r in dump.records() if "/" in r.tap} == {"second"}


def test_globs_that_make_no_sense(tmp_path: Path) -> None:
    model = Steps(lambda model, x: model.first(x))
    with pytest.raises(ArgumentError, match="without an operation"):
        capture(model, tmp_path / "a", ops=["first:"])
    with pytest.raises(ArgumentError, match="need a trace"):
        capture(model, tmp_path / "b", ops=["first"], edges="identity")
