"""Capturing somebody's own module and loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.dump_reading import input_names, record_of, row_table, values_of
from tests.support.plain_models import HEADS, WIDTH, Steps, TinyDecoder
from verify.dumps import capture
from verify.dumps.format import open_dump
from verify.errors import ArgumentError, DumpExistsError, ModelError, UsageError

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def run_cached(model, run_step=None):
    """Prefill of three tokens, then one token at a time, with the model's own cache."""
    logits, caches = model(IDS[:, :3])
    found = [logits]
    for column in (3, 4):
        logits, caches = model(IDS[:, column : column + 1], caches)
        found.append(logits)
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("edges", ["trace", "identity"])
def test_outputs_are_unchanged_by_the_capture(tmp_path, edges):
    model = TinyDecoder()
    plain = run_cached(model)
    with capture(model, tmp_path / "run", edges=edges):
        captured = run_cached(model)
    assert torch.equal(plain, captured)


def test_a_fused_encoder_layer_keeps_its_path_and_is_opaque(tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    model = nn.Sequential(nn.Linear(16, 16), layer, nn.Linear(16, 16)).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        plain = model(x)
        with capture(model, tmp_path / "run") as run:
            captured = model(x)
    assert torch.equal(plain, captured)
    dump = open_dump(tmp_path / "run")
    assert "1.self_attn" in dump.manifest.capture["opaque"]
    assert run.records > 0
    last = record_of(dump, "2.out")
    assert "aten._transformer_encoder_layer_fwd" in last.ops
    assert {"0.out", "weight 1.norm1.weight", "weight 2.weight"} <= input_names(dump, last)


def test_each_outermost_call_is_a_step_and_positions_continue(tmp_path):
    model = TinyDecoder()
    with capture(model, tmp_path / "run"):
        run_cached(model)
    dump = open_dump(tmp_path / "run")
    steps = {r.step: dump.rows(r) for r in dump.records() if r.tap == "embed.out"}
    assert [list(rows.position) for rows in steps.values()] == [[0, 1, 2] * 2, [3, 3], [4, 4]]
    assert list(steps[0].sequence) == ["sequence#0"] * 3 + ["sequence#1"] * 3
    assert dump.complete


def test_a_root_that_calls_itself_is_one_step(tmp_path):
    def forward(module, x):
        y = module.first(x)
        return module.second(module(y)) if x.sum() > 0 else y

    model = Steps(forward)
    with torch.no_grad(), capture(model, tmp_path / "run", taps=["*.out"]):
        model.first.weight.zero_()
        model.first.bias.fill_(-1.0)
        model(torch.ones(1, 2, 4))
    records = open_dump(tmp_path / "run").records()
    seen = [(r.tap, r.step, r.occurrence) for r in records if r.tap != "out"]
    assert seen == [("first.out", 0, 0), ("first.out", 0, 1), ("second.out", 0, 0)]


def test_torch_attention_is_recorded_as_it_reads(tmp_path):
    model = TinyDecoder()
    with capture(model, tmp_path / "run"):
        run_cached(model)
    dump = open_dump(tmp_path / "run")
    head = WIDTH // HEADS
    query = record_of(dump, "layers.0.attn.attn.in.q", step=1)
    assert (query.axes, query.shape) == ("b h t d", [2, HEADS, 1, head])
    key = record_of(dump, "layers.0.attn.attn.in.k", step=1)
    assert (key.axes, key.shape) == ("b h s d", [2, HEADS, 4, head])
    assert (key.n_rows, key.carried) == (2, 6)
    assert list(dump.rows(key).position) == [3, 3]
    out = record_of(dump, "layers.0.attn.attn.out")
    assert out.attributes["is_causal"] is True
    assert out.attributes["scale"] == head**-0.5
    names = ("q", "k", "v", "mask")
    assert input_names(dump, out) == {f"layers.0.attn.attn.in.{name}" for name in names}
    mask = record_of(dump, "layers.0.attn.attn.in.mask")
    assert values_of(dump, mask)[:3].tolist() == [[0, 0, 1], [0, 1, 2], [0, 2, 3]]


def test_a_function_imported_by_name_is_put_back(tmp_path):
    from tests.support import plain_models

    before = plain_models.scaled_dot_product_attention
    with capture(TinyDecoder(), tmp_path / "run"):
        assert plain_models.scaled_dot_product_attention is not before
    assert plain_models.scaled_dot_product_attention is before
    assert nn.functional.scaled_dot_product_attention is before


def test_explicit_steps_align_a_padded_batch_with_one_sequence(tmp_path):
    """The rows of a sequence have the same names alone and beside a longer one."""
    model = TinyDecoder()
    with capture(model, tmp_path / "one") as run, run.step([[0, 1, 2]], ["x"]):
        model(IDS[:1, 2:])
    with (
        capture(model, tmp_path / "two") as run,
        run.step([[-1, -1, 0, 1, 2], [0, 1, 2, 3, 4]], ["x", "y"]),
    ):
        model(IDS)
    one, two = row_table(open_dump(tmp_path / "one")), row_table(open_dump(tmp_path / "two"))
    assert set(one) == {key for key in two if key[2] == "x"}
    embedded = [key for key in one if key[0] == "embed.out"]
    assert len(embedded) == 3
    assert all(one[key] == two[key] for key in embedded)


def test_a_step_without_positions_takes_them_from_the_call(tmp_path):
    model = TinyDecoder()
    with capture(model, tmp_path / "run") as run, run.step(sequences=["x", "y"]):
        model(IDS)
        model(IDS)
    dump = open_dump(tmp_path / "run")
    assert {r.step for r in dump.records()} == {0}
    assert record_of(dump, "embed.out", occurrence=1).n_rows == 10


def test_recomputed_positions_count_visits(tmp_path):
    model = TinyDecoder()
    with capture(model, tmp_path / "run", taps=["embed.out", "*.attn.in.k"]) as run:
        for length in (3, 4):
            with run.step([list(range(length))], ["x"]):
                model(IDS[:1, :length])
    dump = open_dump(tmp_path / "run")
    assert list(dump.rows(record_of(dump, "embed.out", step=1)).visit) == [1, 1, 1, 0]
    key = record_of(dump, "layers.0.attn.attn.in.k", step=1)
    rows = dump.rows(key)
    # Recomputed keys with unchanged bits are carried; rows of other GEMM blocks may be new visits.
    assert key.carried + key.n_rows == 4
    assert (rows.position[-1], rows.visit[-1]) == (3, 0)


def test_own_tensors_are_recorded_inside_a_step(tmp_path):
    model = TinyDecoder()
    with capture(model, tmp_path / "run") as run:
        with run.step([[0, 1, 2]], ["x"]):
            logits, _ = model(IDS[:1, :3])
            run.record("scores", logits.softmax(-1)[:, -1:], axes="b t v", columns=[-1])
        with pytest.raises(UsageError, match="there is no step"):
            run.record("scores", logits)
    dump = open_dump(tmp_path / "run")
    scores = record_of(dump, "scores")
    assert list(dump.rows(scores).position) == [2]
    assert "aten._softmax" in scores.ops


def test_an_exception_leaves_an_open_dump_and_a_clean_model(tmp_path):
    def fail(module, x):
        module.first(x)
        raise RuntimeError("planted")

    model = Steps(fail)
    with pytest.raises(RuntimeError, match="planted"), capture(model, tmp_path / "run"):
        model(torch.ones(1, 2, 4))
    dump = open_dump(tmp_path / "run")
    assert not dump.complete
    assert [r.tap for r in dump.records()] == ["first.out"]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_failed_call_that_is_caught_ends_its_step(tmp_path):
    model = TinyDecoder()
    with capture(model, tmp_path / "run"):
        with pytest.raises(IndexError):
            model(torch.tensor([[1000]]))
        model(IDS)
    dump = open_dump(tmp_path / "run")
    assert record_of(dump, "embed.out", step=1).n_rows == 10


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").write_text("kept")
    with pytest.raises(DumpExistsError):
        capture(TinyDecoder(), tmp_path / "run")
    assert (tmp_path / "run" / "precious").read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"taps": ["layers.0.atn.out"]},
            ModelError,
            r"(?s)no tap.*layers\.0\.atn\.out.*layers\.0\.attn",
        ),
        ({"level": "most"}, ArgumentError, "(?s)unknown capture level.*full, digest, stats"),
        ({"edges": "guess"}, ArgumentError, "(?s)unknown edges.*trace, identity"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        capture(TinyDecoder(), tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_positions_that_do_not_fit_the_call_are_refused(tmp_path):
    model = TinyDecoder()
    with (
        pytest.raises(ArgumentError, match=r"(?s)does not fit the positions.*tokens\.in"),
        capture(model, tmp_path / "run") as run,
        run.step([[0, 1]], ["x"]),
    ):
        model(IDS[:1])


def test_inference_tensors_give_the_same_rows(tmp_path):
    """They count no versions, so that keys are told apart by digest and repeats by their bits."""
    tables = {}
    for guard in (torch.no_grad, torch.inference_mode):
        model, path = TinyDecoder(), tmp_path / guard.__name__
        with guard(), capture(model, path):
            run_cached(model)
        dump = open_dump(path)
        tables[guard] = row_table(dump), [(r.tap, r.kept, r.carried) for r in dump.records()]
    assert tables[torch.no_grad] == tables[torch.inference_mode]


@pytest.mark.parametrize("options", [{}, {"edges": "none", "level": "digest"}])
def test_a_flattened_batch_has_the_rows_of_its_sequences(tmp_path, options):
    model = Steps(lambda model, x: model.second(model.first(x)))
    x = torch.randn(5, 4)
    with torch.no_grad(), capture(model, tmp_path / "run", **options) as run:
        with run.step(positions=[4, 5, 0, 1, -1], sequences=["a", "a", "b", "b", None]):
            model(x)
        run.only_own_steps()
        model(x)
    dump = open_dump(tmp_path / "run")
    (record,) = (r for r in dump.records() if r.tap == "first.out")
    rows = dump.rows(record)
    assert record.axes == "t c"
    assert rows.sequence.tolist() == ["a", "a", "b", "b", None]
    assert rows.position.tolist() == [4, 5, 0, 1, -1]
