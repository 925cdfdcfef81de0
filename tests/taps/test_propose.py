"""Proposals between a transformers Llama and its fused form under names of no library."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from examples.fused_llama import OTHER, Fault, fused_like, small_llama
from tests.support.llama_pair import run
from verify.bisect.run import bisect
from verify.compare.map_check import check_map
from verify.dumps.format import Dump, open_dump
from verify.errors import NotComparableError
from verify.taps.apply import apply_map
from verify.taps.load import parse_map
from verify.taps.propose import propose
from verify.taps.sampling import template_of
from verify.taps.toml import proposal_toml
from verify.taps.types import TapMap

TRUTH = parse_map((Path(__file__).parents[1] / "support/fused_truth.toml").read_text(), "truth")
TURNED = ("self_attn.q_proj.out", "self_attn.k_proj.out", "cache.in.k", "attn.in.q", "attn.in.k")
NO_COUNTERPART = {
    "model.rotary_emb.out": "the fused form looks its angles up in a table",
    "model.rotary_emb.out.1": "likewise",
    "model.layers.{n}.mlp.act_fn.out": "silu(gate) is never a tensor there",
}


def truth(interleaved: bool = False) -> TapMap:
    """The map by hand; with turned heads where rotary embedding pairs neighbours."""
    if not interleaved:
        return TRUTH
    rules = [
        msgspec.structs.replace(rule, heads="interleaved", head_dim="16")
        if rule.a.endswith(TURNED)
        else rule
        for rule in TRUTH.tap
    ]
    return msgspec.structs.replace(TRUTH, tap=rules)


def presented(a: Dump, b: Dump, tap_map: TapMap) -> dict[str, np.ndarray]:
    """Tap of A -> all words that a map presents there."""
    x = apply_map(a, b, tap_map)
    names = {record.tap for record in x.a.records()}
    found: dict[str, list[np.ndarray]] = {}
    for record in x.b.records():
        if record.tap in names:
            found.setdefault(record.tap, []).append(x.b.read_words(record))
    return {tap: np.concatenate(blocks) for tap, blocks in found.items()}


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_proposal_is_complete_and_right(runs, proposed, dtype: str, interleaved: bool):
    a, b = runs(dtype, OTHER, interleaved=interleaved)
    proposal = proposed(dtype, OTHER, interleaved=interleaved)
    by_hand = presented(a, b, truth(interleaved))
    found = presented(a, b, proposal.tap_map)
    assert found.keys() == by_hand.keys()
    for tap, words in by_hand.items():
        assert np.array_equal(found[tap], words), tap
    assert {template_of(tap)[0] for tap in proposal.open_a} == set(NO_COUNTERPART)
    assert not proposal.open_b
    assert {line.confidence for line in proposal.lines} <= {"equal", "rounding"}


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
def test_fused_projections_are_proposed_as_splits(proposed, interleaved: bool):
    proposal = proposed("float32", OTHER, interleaved=interleaved)
    rules = {line.rule.a: line.rule for line in proposal.lines}
    fused = "decoder.blocks.{n}.mixer.wqkv.out"
    for name in ("q", "k", "v"):
        rule = rules[f"model.layers.{{n}}.self_attn.{name}_proj.out"]
        assert (rule.b, rule.take) == (fused, f"{name}_proj")
        assert rule.split == ["q_proj", "k_proj", "v_proj"]
        assert rule.heads == ("interleaved" if interleaved and name != "v" else None)
    assert rules["model.layers.{n}.mlp.up_proj.out"].take == "up_proj"


def test_fused_taps_of_a_are_joined_from_those_of_b(runs):
    """The other way round: the fused form is A."""
    b, a = runs("float32", OTHER)
    proposal = propose(a, b)
    rules = {line.rule.a: line.rule for line in proposal.lines}
    fused = rules["decoder.blocks.{n}.mixer.wqkv.out"]
    assert fused.join == "concat"
    assert fused.b == [f"model.layers.{{n}}.self_attn.{name}_proj.out" for name in "qkv"]
    assert rules["decoder.blocks.{n}.ffn.w13.out"].join == "concat"
    check = check_map(a, b, proposal.tap_map)
    assert {rule.state for rule in check.rules} == {"equal", "near"}
    assert max(rule.relative_l2 for rule in check.rules) < 1e-5
    assert not proposal.open_a


def test_a_proposal_reads_back_and_passes_its_own_check(runs, proposed):
    a, b = runs("bfloat16", OTHER, interleaved=False)
    proposal = proposed("bfloat16", OTHER, interleaved=False)
    text = proposal_toml(proposal)
    assert parse_map(text, "proposed") == proposal.tap_map
    assert "model.layers.{n}.mlp.act_fn.out" in text
    check = check_map(a, b, proposal.tap_map)
    assert {rule.state for rule in check.rules} == {"equal", "near"}
    assert {template_of(tap)[0] for tap in check.open_a} == set(NO_COUNTERPART)
    assert check.exit_code == 3


def test_a_wrong_line_is_seen_by_the_check(runs):
    a, b = runs("float32", OTHER)
    rules = [
        msgspec.structs.replace(rule, take="two" if rule.take == "one" else "one")
        if rule.take in ("one", "two")
        else rule
        for rule in TRUTH.tap
    ]
    check = check_map(a, b, msgspec.structs.replace(TRUTH, tap=rules))
    apart = {rule.a for rule in check.rules if rule.state == "apart"}
    assert apart == {"model.layers.{n}.mlp.gate_proj.out", "model.layers.{n}.mlp.up_proj.out"}
    assert check.exit_code == 1


def test_digests_find_what_is_only_renamed(runs):
    a, b = runs("float32", OTHER, level="digest")
    proposal = propose(a, b)
    lines = {line.rule.a: line for line in proposal.lines}
    norm = lines["model.layers.{n}.post_attention_layernorm.out"]
    assert norm.rule.b == "decoder.blocks.{n}.norm_b.out"
    assert norm.basis in ("digests", "sketches")
    # A sum can be told from sketches, a part of a row cannot.
    open_a = {template_of(tap)[0] for tap in proposal.open_a}
    assert "model.layers.{n}.self_attn.k_proj.out" in open_a
    values = presented(*runs("float32", OTHER), truth())
    again = presented(*runs("float32", OTHER), proposal.tap_map)
    assert len(again) > 30
    for tap, words in again.items():
        assert np.array_equal(words, values[tap]), tap


FAULT = Fault("residual doubled", 1)


def test_a_map_is_found_behind_a_fault_and_leads_bisect_to_it(runs):
    a, b = runs("float32", OTHER, fault=FAULT)
    proposal = propose(a, b)
    sound = presented(*runs("float32", OTHER), truth())
    found = presented(*runs("float32", OTHER), proposal.tap_map)
    for tap, words in found.items():
        assert np.array_equal(words, sound[tap]), tap
    assert {template_of(tap)[0] for tap in proposal.open_a} == set(NO_COUNTERPART)
    # What the norm added is not what A has, so the sum stands in its place: the fault is in the norm.
    assert gross(a, b, proposal.tap_map)[0] == "model.layers.1.input_layernorm.out"


def gross(a: Dump, b: Dump, tap_map: TapMap) -> list[str]:
    """Origins that are more than rounding of float32."""
    x = apply_map(a, b, tap_map)
    return [o.tap for o in bisect(x.a, x.b).origins if o.measure["relative L2"] > 1e-4]


@pytest.mark.parametrize(
    ("fault", "tap"),
    [
        (Fault("attention scale", 1), "self_attn.attn.out"),
        (Fault("rope base", 1), "self_attn.cache.in.k"),
        (Fault("residual doubled after attention", 1), "post_attention_layernorm.in.0"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_map_of_sound_runs_leads_to_a_later_fault(runs, proposed, fault: Fault, tap: str):
    proposal = proposed("float32", OTHER, interleaved=False)
    found = gross(*runs("float32", OTHER, fault=fault), proposal.tap_map)
    assert found[0] == f"model.layers.1.{tap}"


def alike_layers(dtype: torch.dtype, scale: float) -> torch.nn.Module:
    """Five layers of the same weights that add next to nothing to the stream."""
    model = small_llama(dtype, 5)
    first = dict(model.model.layers[0].named_parameters())
    with torch.no_grad():
        for layer in model.model.layers:
            for name, weight in layer.named_parameters():
                weight.copy_(first[name])
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(scale)
            layer.mlp.down_proj.weight.mul_(scale)
    return model


def test_layers_that_are_alike_are_not_mixed_up(tmp_path):
    """Layers here lie closer together than both runs of one of them: rounding of bfloat16."""
    model = alike_layers(torch.bfloat16, 0.001)
    a = open_dump(run(model, tmp_path / "a"))
    b = open_dump(run(fused_like(model, OTHER), tmp_path / "b"))
    proposal = propose(a, b)
    by_hand = presented(a, b, TRUTH)
    found = presented(a, b, proposal.tap_map)
    assert found.keys() == by_hand.keys()
    for tap, words in by_hand.items():
        assert np.array_equal(found[tap], words), tap
    assert any(line.alike > 1 for line in proposal.lines)  # so values alone would not have told


def test_another_network_of_the_same_shapes_is_not_related(runs, tmp_path):
    """Other weights: what is left are ids, positions and masks, and guesses that say they are."""
    b = open_dump(run(fused_like(small_llama(seed=5), OTHER), tmp_path / "b"))
    proposal = propose(runs()[0], b)
    by_value = [line.rule.a for line in proposal.lines if line.confidence != "shape"]
    assert by_value == [
        "tokens.in", "positions.in", "model.layers.{n}.self_attn.attn.in.mask"
    ]  # fmt: skip
    assert "model.layers.1.self_attn.q_proj.out" in proposal.open_a


def test_runs_without_a_row_in_common_are_refused(runs, tmp_path):
    from verify.dumps import capture

    model = small_llama()
    places = torch.arange(3)[None]
    with (
        torch.no_grad(),
        capture(model, tmp_path / "other") as recording,
        recording.step(positions=places, sequences=["another text"]),
    ):
        model(places)
    with pytest.raises(NotComparableError, match="no row in common"):
        propose(runs()[0], open_dump(tmp_path / "other"))
