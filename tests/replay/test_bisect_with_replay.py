"""Bisect with the models at hand: innocents come out as rounding, planted defects are blamed."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.toy_pairs import Side, changed_attention, changed_output, pair
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.replay.checker import checker
from verify.replay.run import Models, replay

INNOCENTS = {
    "eager": Side(attn="eager"),
    "chunks of 13": Side(options={"prefill_chunk": 13}),
    "chunks of 1": Side(options={"prefill_chunk": 1, "prompts": ("Hello there",)}),
    "in a batch of 3": Side(options={"batch": 3}),
    "one thread": Side(options={"threads": 1}),
}


def bisected(first, second):
    found = replay(first.dump, second.dump, Models(first.implementation, second.implementation))
    answers = checker(found, first.dump, second.dump)
    return found, bisect(first.dump, second.dump, checkers=[answers])


def with_dtype(side, dtype):
    return Side(dtype, side.attn, side.options, side.plant, side.layers)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", INNOCENTS)
def test_innocent_pairs_are_rounding(tmp_path, name, dtype):
    a = Side(dtype, options={"threads": 2})
    b = with_dtype(INNOCENTS[name], dtype)
    a.options |= {k: v for k, v in b.options.items() if k == "prompts"}
    b.options = {"threads": 2, **b.options}
    found, result = bisected(*pair(tmp_path, a, b))
    assert found.faithful
    judged = {f.verdict for f in result.findings} - {Verdict.INCOMPLETE}
    assert judged <= {Verdict.ROUNDING}, [(f.verdict, f.title, f.reasons) for f in result.findings]
    # Only the other rows of a batch have no counterpart.
    assert result.exit_code == (3 if "batch" in name else 0)


def behind_first(change):
    """The change at all positions of the prompt but the first four. Position 0 reads one key, where
    eager and sdpa agree in every bit: there the defect would be an origin, and easy to find."""

    def changed(out, *qkv):
        wrong = change(out, *qkv)
        return torch.cat([out[:, :4], wrong[:, 4:]], dim=1)

    return changed


@behind_first
def scaled_values(out, q, k, v):
    return out * 1.05


@behind_first
def newest_key_twice(out, q, k, v):
    """One head group reads its newest value a second time."""
    out = out.clone()
    newest = v[:, 1, -out.shape[1] :]
    out[:, :, 2:4] = (out[:, :, 2:4] + 0.2 * newest[:, :, None]) / 1.2
    return out


DEFECTS = {
    "attention, all heads": (
        "model.layers.2.self_attn.attn.out",
        lambda model: changed_attention(model, 2, scaled_values),
    ),
    "attention, one head group": (
        "model.layers.2.self_attn.attn.out",
        lambda model: changed_attention(model, 2, newest_key_twice),
    ),
    "norm": (
        "model.layers.2.post_attention_layernorm.out",
        lambda model: changed_output(
            model.model.layers[2].post_attention_layernorm, behind_first(lambda y: y * 1.02)
        ),
    ),
    "linear, one output": (
        "model.layers.2.self_attn.o_proj.out",
        lambda model: changed_output(model.model.layers[2].self_attn.o_proj, one_output),
    ),
    "activation": (
        "model.layers.1.mlp.act_fn.out",
        lambda model: changed_output(
            model.model.layers[1].mlp.act_fn, behind_first(lambda y: y * 1.03)
        ),
    ),
}


@behind_first
def one_output(y):
    y = y.clone()
    y[..., 5] = y[..., 5] * 1.1
    return y


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_above_innocent_rounding_is_blamed(tmp_path, name, dtype):
    tap, plant = DEFECTS[name]
    sides = Side(dtype, layers=3), Side(dtype, "eager", plant=plant, layers=3)
    found, result = bisected(*pair(tmp_path, *sides, tokens=2))
    blamed = [t for f in result.findings if f.verdict is Verdict.DEFECT for t in f.taps]
    assert blamed == [tap], [(f.verdict, f.title, f.reasons) for f in result.findings]
    assert result.verdict is Verdict.DEFECT
    assert tap not in [origin.tap for origin in result.origins]
    rounding = [t.tap for t in found.taps if t.status == "ROUNDING"]
    assert "model.layers.0.self_attn.attn.out" in rounding


def test_an_8_bit_cache_is_a_cast_in_every_layer_and_no_defect(tmp_path):
    a, b = pair(tmp_path, Side("fp32"), Side("fp32", options={"kv_cache": "e4m3"}))
    found, result = bisected(a, b)
    assert found.faithful
    assert result.verdict is Verdict.PRECISION
    assert {f.verdict for f in result.findings} <= {Verdict.PRECISION, Verdict.ROUNDING}
    casts = {tap for f in result.findings if f.verdict is Verdict.PRECISION for tap in f.taps}
    assert {tap.rpartition(".")[2] for tap in casts} == {"k", "v"}
