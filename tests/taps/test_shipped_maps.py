"""What the maps of the package relate, by the names that the engines give their tensors."""

import numpy as np
import pytest

from verify.compare.run import compare
from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter, open_dump
from verify.dumps.format.schema import Manifest, Record, Rows
from verify.taps.apply import apply_map
from verify.taps.columns import interleaved_to_halves
from verify.taps.load import load_map, shipped_maps
from verify.taps.plan import declared_alone, plan

LAYER = "model.layers.1."
LLAMA = [
    "model.embed_tokens.out", "positions.in", "model.rotary_emb.out", "model.rotary_emb.out.1",
    *(LAYER + port for port in (
        "input_layernorm.in.0", "input_layernorm.out", "self_attn.q_proj.out",
        "self_attn.k_proj.out", "self_attn.v_proj.out", "self_attn.cache.in.k",
        "self_attn.cache.in.v", "self_attn.attn.in.q", "self_attn.attn.in.k",
        "self_attn.attn.in.v", "self_attn.attn.in.mask", "self_attn.attn.out",
        "self_attn.o_proj.out", "post_attention_layernorm.in.0", "post_attention_layernorm.out",
        "mlp.gate_proj.out", "mlp.act_fn.out", "mlp.up_proj.out", "mlp.down_proj.in.0",
        "mlp.down_proj.out", "out",
    )),
    "model.norm.in.0", "model.norm.out", "logits",
]  # fmt: skip
QK_NORMS = [LAYER + "self_attn.q_norm.out", LAYER + "self_attn.k_norm.out"]
GEMMA = [
    *LLAMA, *QK_NORMS,
    *(f"{LAYER}{norm}_feedforward_layernorm.{port}" for norm in ("pre", "post")
      for port in ("in.0", "out")),
]  # fmt: skip

FUSED = [
    "model.in.1", "model.embed_tokens.out", "model.layers.0.input_layernorm.in.0",
    *(LAYER + port for port in (
        "input_layernorm.in.0", "input_layernorm.in.1", "input_layernorm.out",
        "input_layernorm.out.1", "self_attn.qkv_proj.out", "self_attn.attn.in.0",
        "self_attn.attn.in.1", "self_attn.attn.in.2", "self_attn.attn.out",
        "self_attn.o_proj.out", "post_attention_layernorm.in.0", "post_attention_layernorm.in.1",
        "post_attention_layernorm.out", "post_attention_layernorm.out.1",
        "mlp.gate_up_proj.out", "mlp.act_fn.out", "mlp.down_proj.out", "out", "out.1",
    )),
    "model.norm.in.0", "model.norm.in.1", "model.norm.out", "model.norm.out.1",
]  # fmt: skip
FUSED_GEMMA = [
    *(tap for tap in FUSED if "post_attention_layernorm.out.1" not in tap), *QK_NORMS,
    *(f"{LAYER}{port}" for port in (
        "pre_feedforward_layernorm.in.0", "pre_feedforward_layernorm.in.1",
        "pre_feedforward_layernorm.out", "pre_feedforward_layernorm.out.1",
        "post_feedforward_layernorm.in.0", "post_feedforward_layernorm.out")),
]  # fmt: skip
GGML = [
    "inp_embd", "l_out-0", "attn_norm-1", "Qcur-1", "Kcur-1", "Vcur-1", "kqv_out-1", "attn_out-1",
    "ffn_inp-1", "ffn_norm-1", "ffn_gate-1", "ffn_up-1", "ffn_swiglu-1", "ffn_out-1", "l_out-1",
    "result_norm", "result_output",
]  # fmt: skip
GGML_GEMMA = [
    "inp_scaled", "l_out-0", "attn_norm-1", "Qcur-1", "Kcur-1", "Vcur-1", "Qcur_normed-1",
    "Kcur_normed-1", "kqv_out-1", "attn_post_norm-1", "sa_out-1", "ffn_norm-1", "ffn_gate-1",
    "ffn_up-1", "ffn_geglu-1", "ffn_out-1", "ffn_post_norm-1", "l_out-1", "result_norm",
    "result_output",
]  # fmt: skip

CASES = {
    "vllm-llama": (LLAMA, [*FUSED, "logits_processor.out"]),
    "sglang-llama": (LLAMA, [*FUSED, "logits_processor.out.next_token_logits"]),
    "vllm-gemma3": (GEMMA, [*FUSED_GEMMA, "logits_processor.out"]),
    "sglang-gemma3": (GEMMA, [*FUSED_GEMMA, "logits_processor.out.next_token_logits"]),
    "llamacpp-llama": (LLAMA, GGML),
    "llamacpp-qwen": ([*LLAMA, *QK_NORMS], [*GGML, "Qcur_normed-1", "Kcur_normed-1"]),
    "llamacpp-gemma3": (GEMMA, GGML_GEMMA),
    "onnx": (LLAMA, [t for t in LLAMA if t != "positions.in" and ".cache.in." not in t]),
}


def test_every_shipped_map_has_a_case():
    assert set(CASES) == set(shipped_maps())


@pytest.mark.parametrize("name", CASES)
def test_every_tap_has_its_counterpart_or_a_reason(name: str):
    taps_a, taps_b = CASES[name]
    tap_map = load_map(name)
    found = plan(tap_map, taps_a, taps_b)
    presented = {derived.tap for derived in found.derived} | set(found.same)
    left = [t for t in taps_a if t not in presented and not declared_alone(tap_map, "a", t)]
    assert not left
    assert not found.open


def sources(name: str) -> dict[str, tuple[str, ...]]:
    return {d.tap: d.sources for d in plan(load_map(name), *CASES[name]).derived}


def test_the_stream_of_gemma_is_added_before_the_feed_forward():
    for name in ("vllm-gemma3", "sglang-gemma3"):
        found = sources(name)
        added = (f"{LAYER}pre_feedforward_layernorm.out.1",)
        assert found[f"{LAYER}pre_feedforward_layernorm.in.0"] == added
        own = (f"{LAYER}post_attention_layernorm.in.0",)
        assert found[f"{LAYER}post_attention_layernorm.in.0"] == own


def test_embeddings_are_those_that_are_scaled():
    assert sources("vllm-gemma3")["model.embed_tokens.out"] == (
        "model.layers.0.input_layernorm.in.0",
    )
    assert sources("sglang-gemma3")["model.embed_tokens.out"] == ("model.embed_tokens.out",)
    assert sources("llamacpp-gemma3")["model.embed_tokens.out"] == ("inp_scaled",)


def test_only_the_llama_architecture_of_llamacpp_permutes():
    for name, heads in (("llamacpp-llama", "interleaved"), ("llamacpp-qwen", None)):
        found = plan(load_map(name), *CASES[name]).derived
        turned = {d.tap: d.rule.heads for d in found if d.sources[0] in ("Qcur-1", "Kcur-1")}
        assert len(turned) == 4
        assert set(turned.values()) == {heads}


NODES = [
    *(f"{tap.removesuffix('-1')}-{n}" for tap in GGML if tap.endswith("-1") for n in range(3)),
    "l_out-0", "inp_embd", "result_norm", "result_output",
]  # fmt: skip


def ggml_name(tap: str) -> str | None:
    """llama.cpp's name for a tap of a Llama of transformers."""
    if tap.startswith("tokens"):
        return tap
    found = plan(load_map("llamacpp-llama"), [tap], NODES).derived
    return found[0].sources[0] if found else None


def test_a_run_with_the_names_and_heads_of_llamacpp_is_the_same_run(runs, tmp_path):
    """The run of transformers written again as llama.cpp would: every bit is compared and equal."""
    a, _ = runs()
    manifest = Manifest(run_id="ggml", workload=a.manifest.workload, model=a.manifest.model)
    turned = {}
    with DumpWriter(tmp_path / "b", manifest) as writer:
        seq, counts = 0, {}
        for record in a.records():
            name = ggml_name(record.tap)
            if name is None or record.same_as is not None:
                continue
            words, rows = a.read_words(record), a.rows(record)
            if name.startswith(("Qcur", "Kcur")):
                order = np.argsort(interleaved_to_halves(record.row_length, 16, 16))
                words = np.ascontiguousarray(words[:, order])
                turned[name] = True
            place = counts[name, record.step] = counts.get((name, record.step), -1) + 1
            writer.add(
                Record(
                    seq=seq, step=record.step, tap=name, occurrence=place, axes=record.axes,
                    dtype=record.dtype, shape=record.shape, strides=record.strides,
                    storage_offset=0, row_length=record.row_length, n_rows=record.n_rows,
                ),
                Rows(rows.sequence, rows.position, rows.visit, row_digests(words, record.dtype)),
                words,
            )  # fmt: skip
            seq += 1
    x = apply_map(a, open_dump(tmp_path / "b"), load_map("llamacpp-llama"))
    result = compare(x.a, x.b)
    assert len(turned) == 6
    assert not [tap for tap in result.taps if tap.differing_rows]
    compared = {tap.tap for tap in result.taps}
    assert {"model.layers.2.self_attn.k_proj.out", "model.layers.2.self_attn.cache.in.k",
            "model.layers.0.out", "logits", "model.norm.out"} <= compared  # fmt: skip
    assert not result.unmatched
