"""Layers that compute as the other side does: every part serves its calls, all of them are the
other side, and what flips alone is said."""

import pytest

from tests.support.toy_pairs import Side, pair
from verify.errors import ArgumentError, NotComparableError
from verify.replay.run import Models
from verify.swap.implementations import swap_implementations
from verify.swap.parts import By, cut, parse_by

LAYERS = 3


def swapped(folder, a, b, **options):
    first, second = pair(folder, a, b, tokens=2)
    models = Models(first.implementation, second.implementation)
    return swap_implementations(first.dump, second.dump, models, **options)


def narrow(**options):
    return Side(layers=LAYERS, options={"kv_cache": "e4m3", **options})


def trials(result, into, taps):
    return [t for t in result.trials if t.into == into and t.taps == taps]


@pytest.mark.parametrize("by", list(By))
def test_all_parts_together_are_the_other_side(tmp_path, by):
    result = swapped(tmp_path, Side(layers=LAYERS), narrow(), by=by)
    for into in "AB":
        everything = trials(result, into, result.candidates)
        assert not everything or everything[0].moved == 1.0
    assert trials(result, "B", result.candidates)
    assert result.exchanged == "part"


def test_eager_and_fused_cores_are_exchanged_with_their_masks(tmp_path):
    sides = Side(layers=LAYERS, attn="sdpa"), Side(layers=LAYERS, attn="eager")
    result = swapped(tmp_path, *sides)
    assert result.candidates == LAYERS
    assert trials(result, "B", LAYERS)[0].moved == 1.0


def test_every_part_is_tried_alone_in_both_directions(tmp_path):
    result = swapped(tmp_path, Side(layers=LAYERS), narrow(), by=By.BOTH, each=True)
    assert result.candidates == 2 * LAYERS
    for into in "AB":
        assert len({t.shown for t in trials(result, into, 1)}) == 2 * LAYERS
    told = [note for note in result.notes if "alone" in note]
    assert len(told) == 2 and "parts that cause it alone" in told[0]
    # Keys of one layer, and nothing else, are other keys than those of all layers.
    moved = [t.moved for t in trials(result, "A", 1)]
    assert all(value != 0.0 for value in moved) and len(set(moved)) == len(moved)


def test_each_trial_counts_the_calls_that_it_served(tmp_path):
    result = swapped(tmp_path, Side(layers=LAYERS), narrow(), by=By.LAYER)
    one = next(t for t in result.trials if t.taps == 1)
    # keys and values of one layer, in every step up to the choice
    assert one.rows_proven in (2, 4) and one.passes == one.rows_proven // 2


def test_a_part_that_is_never_called_is_refused(tmp_path, monkeypatch):
    from verify.swap import mixed

    monkeypatch.setattr(mixed, "_attention_of", lambda *given: mixed.ExitStack())
    sides = Side(layers=LAYERS, attn="sdpa"), Side(layers=LAYERS, attn="eager")
    with pytest.raises(NotComparableError, match="did not take place"):
        swapped(tmp_path, *sides)


def test_runs_of_one_implementation_have_no_parts(tmp_path):
    first, second = pair(tmp_path, Side(), Side(), tokens=1)
    with pytest.raises(NotComparableError, match="no part of the implementation"):
        cut(first.dump, second.dump, LAYERS, By.LAYER)


def test_unknown_ways_of_cutting_are_refused():
    with pytest.raises(ArgumentError, match="no such parts"):
        parse_by("head")
