"""Planted causes in the toy Llama: found, proven, confirmed in reverse, within the budget."""

import random
from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.toy_pairs import Side, changed_attention, changed_output, pair
from verify.errors import NotComparableError
from verify.replay.run import Models
from verify.swap.run import swap

LAYERS = 4
SITES = [
    ("self_attn.q_proj", "model.layers.{}.self_attn.q_proj.out"),
    ("self_attn.o_proj", "model.layers.{}.self_attn.o_proj.out"),
    ("input_layernorm", "model.layers.{}.input_layernorm.out"),
    ("mlp.down_proj", "model.layers.{}.mlp.down_proj.out"),
    ("mlp.act_fn", "model.layers.{}.mlp.act_fn.out"),
]


def swapped(first, second, **options):
    return swap(
        first.dump, second.dump, Models(first.implementation, second.implementation), **options
    )


def planted(draw, factor=1.5):
    """A random site in a random layer, and the plant: every sixteenth channel grows."""
    layer = draw.randrange(LAYERS)
    path, tap = draw.choice(SITES)
    channel = draw.randrange(16)

    def change(y):
        y = y.clone()
        y[..., channel::16] *= factor
        return y

    def plant(model):
        return changed_output(model.model.layers[layer].get_submodule(path), change)

    return tap.format(layer), plant


@pytest.mark.parametrize("seed", range(10))
def test_ten_random_single_faults(tmp_path, seed):
    tap, plant = planted(random.Random(seed))
    sides = Side(layers=LAYERS), Side(layers=LAYERS, plant=plant)
    result = swapped(*pair(tmp_path, *sides, tokens=1))
    assert (result.undo, result.cause, result.confirmed) == ([tap], [tap], True)
    assert result.exit_code == 0 and result.repeatable
    assert len(result.trials) == result.passes <= result.budget
    undone = next(t for t in result.trials if t.shown == tap and t.into == "B")
    assert undone.moved == 1.0 and undone.rows_proven > 40


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_single_fault_above_innocent_rounding(tmp_path, dtype):
    # Large beside the rounding of the toy in bf16, which moves its logits by a third otherwise.
    tap, plant = planted(random.Random(3), factor=6.0)
    sides = Side(dtype, layers=LAYERS), Side(dtype, "eager", plant=plant, layers=LAYERS)
    result = swapped(*pair(tmp_path, *sides, tokens=1))
    assert (result.undo, result.cause, result.confirmed) == ([tap], [tap], True)
    assert len(result.trials) <= result.budget


def two_faults(model):
    """Both of a pair: the output of one projection grows, and that of a later one."""

    def grow(y):
        y = y.clone()
        y[..., ::2] *= 1.6
        return y

    @contextmanager
    def both():
        with ExitStack() as exits:
            for layer in (0, 3):
                module = model.model.layers[layer].self_attn.o_proj
                exits.enter_context(changed_output(module, grow))
            yield

    return both()


def test_both_members_of_a_pair_are_found(tmp_path):
    """Repairing one of them leaves a good part of the difference."""
    pair_taps = [f"model.layers.{layer}.self_attn.o_proj.out" for layer in (0, 3)]
    sides = Side(layers=LAYERS), Side(layers=LAYERS, plant=two_faults)
    result = swapped(*pair(tmp_path, *sides, tokens=1))
    assert result.undo == pair_taps
    assert result.confirmed
    alone = [t for t in result.trials if t.into == "B" and t.shown in pair_taps]
    assert alone and not any(t.crossed for t in alone)


def test_the_choice_of_a_later_step_and_its_state_alone(tmp_path):
    tap, plant = planted(random.Random(4))
    sides = Side(layers=LAYERS), Side(layers=LAYERS, plant=plant)
    first, second = pair(tmp_path, *sides, tokens=3)
    last = len(first.dump.manifest.workload.sequences[0].prompt) + 1
    whole = swapped(first, second, position=last)
    assert whole.undo == [tap]
    assert {t.passes for t in whole.trials} == {3}
    alone = swapped(first, second, position=last, alone=True, most=20)
    assert {t.passes for t in alone.trials} == {1}
    # What the faulty steps before left in the cache is a cause of its own.
    assert alone.undo is None or any(t.endswith(("attn.in.k", "attn.in.v")) for t in alone.undo)


def test_equal_runs_have_nothing_to_swap(tmp_path):
    first, second = pair(tmp_path, Side(), Side(), tokens=1)
    with pytest.raises(NotComparableError, match="no difference of logits"):
        swapped(first, second)


def test_a_model_that_is_not_that_of_the_run_is_refused(tmp_path):
    _, plant = planted(random.Random(0))
    first, second = pair(tmp_path, Side(layers=LAYERS), Side(layers=LAYERS, plant=plant), tokens=1)
    second.implementation.around = nullcontext
    with pytest.raises(NotComparableError, match="does not give the logits that B recorded"):
        swapped(first, second)


def test_a_swap_that_does_not_reach_its_readers_is_refused(tmp_path, monkeypatch):
    """The proof is taken from what readers see, not from what was asked for."""
    from verify.replay import sink

    _, plant = planted(random.Random(1))
    first, second = pair(tmp_path, Side(layers=LAYERS), Side(layers=LAYERS, plant=plant), tokens=1)
    monkeypatch.setattr(sink, "overwrite", lambda target, source: None)
    with pytest.raises(NotComparableError, match="a swap did not take place"):
        swapped(first, second)


def test_globs_limit_what_is_exchanged(tmp_path):
    tap, plant = planted(random.Random(5))
    sides = Side(layers=LAYERS), Side(layers=LAYERS, plant=plant)
    result = swapped(*pair(tmp_path, *sides, tokens=1), taps=["*.attn.in.q"])
    assert tap.endswith("attn.in.q") or result.undo is None
    assert result.candidates == LAYERS and np.isfinite(result.trials[0].margin)


def scaled(out, q, k, v):
    return out * 1.2


def test_a_fault_in_an_attention_core(tmp_path):
    plant = lambda model: changed_attention(model, 2, scaled)
    sides = Side(layers=LAYERS), Side(layers=LAYERS, plant=plant)
    result = swapped(*pair(tmp_path, *sides, tokens=1))
    assert result.undo == result.cause == ["model.layers.2.self_attn.attn.out"]
