"""Inputs of records, on a Llama: what each was computed from, and by which operations."""

from __future__ import annotations

import pytest
import torch

from tests.support.dump_reading import input_names, record_of, values_of
from tests.support.plain_models import Steps
from tests.support.toy_model import toy_llama
from verify.dumps import capture
from verify.dumps.format import open_dump

LAYER = "model.layers.1"
ATTENTION = f"{LAYER}.self_attn"
NORM = f"{LAYER}.input_layernorm"
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def record_toy(path, attn="sdpa", **options):
    """Prefill of five tokens, then one more with the cache."""
    model = toy_llama(attn=attn)
    positions = torch.arange(5)[None]
    with torch.no_grad(), capture(model, path, **options):
        out = model(IDS, position_ids=positions, attention_mask=torch.ones_like(IDS))
        model(out.logits[:, -1:].argmax(-1), cache=out.cache)
    return open_dump(path)


@pytest.fixture(scope="module")
def toy_dump(tmp_path_factory):
    return record_toy(tmp_path_factory.mktemp("provenance") / "run")


WEIGHT_OF_EMBEDDING = {"weight model.embed_tokens.weight", "weight lm_head.weight"}


@pytest.mark.parametrize(
    ("tap", "inputs"),
    [
        ("tokens.in", {"value input_ids"}),
        ("model.embed_tokens.out", {"tokens.in"} | WEIGHT_OF_EMBEDDING),
        ("model.rotary_emb.out", {"positions.in", "weight model.rotary_emb.inv_freq"}),
        (f"{NORM}.out", {"model.layers.0.out", f"weight {NORM}.weight"}),
        (f"{ATTENTION}.q_proj.out", {f"{NORM}.out", f"weight {ATTENTION}.q_proj.weight"}),
        (
            f"{ATTENTION}.attn.in.q",
            {f"{ATTENTION}.q_proj.out", "model.rotary_emb.out", "model.rotary_emb.out.1"},
        ),
        (f"{ATTENTION}.attn.in.k", {f"{ATTENTION}.cache.in.k"}),
        (f"{ATTENTION}.cache.in.v", {f"{ATTENTION}.v_proj.out"}),
        (f"{LAYER}.mlp.down_proj.in.0", {f"{LAYER}.mlp.act_fn.out", f"{LAYER}.mlp.up_proj.out"}),
        (f"{LAYER}.out", {f"{LAYER}.post_attention_layernorm.in.0", f"{LAYER}.mlp.down_proj.out"}),
        ("logits", {"model.norm.out"} | WEIGHT_OF_EMBEDDING),
    ],
)
def test_inputs(toy_dump, tap, inputs):
    assert input_names(toy_dump, record_of(toy_dump, tap)) == inputs


def test_attention_reads_its_four_inputs(toy_dump):
    out = record_of(toy_dump, f"{ATTENTION}.attn.out")
    read = {f"{ATTENTION}.attn.in.{name}" for name in "qkv"}
    # Both layers share a mask: the record that holds it is that of layer 0.
    assert input_names(toy_dump, out) == read | {"model.layers.0.self_attn.attn.in.mask"}
    assert out.attributes["implementation"] == "sdpa"
    assert out.attributes["enable_gqa"] is True


def test_operations_are_named_since_the_last_tap(toy_dump):
    rope = record_of(toy_dump, f"{ATTENTION}.attn.in.q").ops
    assert [op for op in rope if op in ("aten.mul", "aten.neg", "aten.cat", "aten.add")] == [
        "aten.mul",
        "aten.neg",
        "aten.cat",
        "aten.add",
    ]
    assert record_of(toy_dump, f"{LAYER}.out").ops == ["aten.add"]


def test_decode_reads_the_keys_of_the_step_before(toy_dump):
    key = record_of(toy_dump, f"{ATTENTION}.attn.in.k", step=1)
    before = record_of(toy_dump, f"{ATTENTION}.attn.in.k", step=0)
    entering = record_of(toy_dump, f"{ATTENTION}.cache.in.k", step=1)
    assert {source.seq for source in key.inputs} == {before.seq, entering.seq}
    assert (key.carried, key.n_rows) == (5, 1)
    chosen = record_of(toy_dump, "tokens.in", step=1)
    assert input_names(toy_dump, chosen) == {"logits"}
    assert "aten.argmax" in chosen.ops


def test_the_residual_stream_is_recorded_once(toy_dump):
    entering = record_of(toy_dump, f"{NORM}.in.0")
    leaving = record_of(toy_dump, "model.layers.0.out")
    assert (entering.kept, entering.same_as) == ("same", leaving.seq)
    assert toy_dump.read_words(entering).tobytes() == toy_dump.read_words(leaving).tobytes()


def test_eager_attention_is_recorded_too(tmp_path):
    model = toy_llama(attn="eager")
    mask = torch.ones_like(IDS)
    mask[:, :2] = 0
    with torch.no_grad(), capture(model, tmp_path / "run"):
        model(IDS, attention_mask=mask)
    dump = open_dump(tmp_path / "run")
    out = record_of(dump, f"{ATTENTION}.attn.out")
    assert out.attributes["implementation"] == "eager"
    assert {"aten.bmm", "aten._softmax"} <= set(out.ops)
    # The mask tensor is added to the scores: what it was made from is behind the mask's own tap.
    read = {f"{ATTENTION}.attn.in.{name}" for name in "qkv"}
    shared = "model.layers.0.self_attn.attn.in.mask"
    assert input_names(dump, out) == read | {shared}
    assert "value attention_mask" in input_names(dump, record_of(dump, shared))
    assert values_of(dump, record_of(dump, shared)).tolist()[2:] == [
        [0, 0, 1],
        [0, 1, 2],
        [0, 2, 3],
    ]


def test_without_taps_in_between_inputs_reach_further_back(tmp_path):
    dump = record_toy(tmp_path / "run", taps=["model.layers.0.out", "logits"])
    inputs = input_names(dump, record_of(dump, "logits"))
    assert "model.layers.0.out" in inputs
    assert f"weight {ATTENTION}.q_proj.weight" in inputs
    assert "weight model.layers.0.self_attn.q_proj.weight" not in inputs


def test_without_a_trace_what_is_not_recognised_is_unknown(tmp_path):
    dump = record_toy(tmp_path / "run", edges="identity")
    known = record_of(dump, f"{ATTENTION}.q_proj.out")
    assert input_names(dump, known) == {f"{NORM}.out", f"weight {ATTENTION}.q_proj.weight"}
    # What a layer reads from its cache is not among its tensor arguments.
    for tap in (f"{LAYER}.out", f"{ATTENTION}.attn.in.q", f"{ATTENTION}.o_proj.out"):
        assert "unknown" in input_names(dump, record_of(dump, tap))


def captured(path, function, x):
    model = Steps(function)
    with torch.no_grad(), capture(model, path, taps=["*.out", "out"]):
        model(x)
    return open_dump(path)


def test_a_value_from_outside_is_known_by_its_digest(tmp_path):
    def digest_of(name, constant):
        table = torch.full((4,), constant)
        dump = captured(tmp_path / name, lambda m, x: m.first(x) + table, torch.ones(1, 2, 4))
        (source,) = (i for i in record_of(dump, "out").inputs if i.kind == "value")
        return source.name, source.digest

    assert digest_of("a", 1.0) == digest_of("b", 1.0)
    assert digest_of("a2", 1.0) != digest_of("c", 2.0)
    assert digest_of("d", 1.0)[0] == "float32[4]"


def test_random_numbers_are_unknown(tmp_path):
    def forward(module, x):
        y = module.first(x)
        return y + torch.rand_like(y)

    dump = captured(tmp_path / "run", forward, torch.ones(1, 2, 4))
    assert input_names(dump, record_of(dump, "out")) == {"first.out", "unknown aten.rand_like"}


def test_memory_written_past_the_dispatcher_is_unknown(tmp_path):
    def forward(module, x):
        y = module.first(x)
        out = torch.empty_like(y)
        out.numpy()[...] = y.numpy() * 2  # as a kernel launched by hand would
        return module.second(out)

    dump = captured(tmp_path / "run", forward, torch.ones(1, 2, 4))
    assert "unknown aten.empty_like" in input_names(dump, record_of(dump, "second.out"))


def test_a_buffer_that_is_replaced_forgets_what_it_held(tmp_path):
    """A preallocated output that is used twice depends on its last content only."""
    buffer = torch.zeros(1, 2, 4)

    def forward(module, x):
        first = module.first(x)
        torch.add(first, 1.0, out=buffer)
        second = module.second(x)
        torch.mul(second, 2.0, out=buffer)
        return buffer + 0.0

    dump = captured(tmp_path / "run", forward, torch.ones(1, 2, 4))
    assert input_names(dump, record_of(dump, "out")) == {"second.out"}


def test_a_buffer_that_is_written_in_part_keeps_what_it_held(tmp_path):
    buffer = torch.zeros(1, 2, 4)

    def forward(module, x):
        buffer[:, :1].copy_(module.first(x)[:, :1])
        return buffer + 0.0

    dump = captured(tmp_path / "run", forward, torch.ones(1, 2, 4))
    assert input_names(dump, record_of(dump, "out")) == {"first.out", "value float32[1, 2, 4]"}


def test_a_write_to_a_recorded_part_leaves_the_ancestry_of_the_rest(tmp_path):
    def forward(module, x):
        buffer = torch.zeros(1, 2, 8)
        buffer[..., :4].copy_(module.first(x))
        part = buffer[..., 4:]
        module.second(part)
        part.add_(1.0)
        return buffer * 2.0

    model = Steps(forward)
    with torch.no_grad(), capture(model, tmp_path / "run", taps=["*.out", "out", "second.in.0"]):
        model(torch.ones(1, 2, 4))
    dump = open_dump(tmp_path / "run")
    assert input_names(dump, record_of(dump, "out")) == {"first.out", "second.in.0"}
