"""The search alone, on effects that are known: single, joint, redundant, and not monotone."""

import math
import random

import pytest

from verify.swap.search import ddmin, find_set, tipping_prefix

ORDER = [f"tap{i}" for i in range(100)]


def counted(rule):
    calls = []

    def crosses(chosen):
        calls.append(chosen)
        return rule(chosen)

    return crosses, calls


@pytest.mark.parametrize("seed", range(10))
def test_a_single_cause_takes_one_bisection(seed):
    cause = random.Random(seed).choice(ORDER)
    crosses, calls = counted(lambda chosen: cause in chosen)
    assert find_set(ORDER, crosses, 8) == [cause]
    assert len(calls) <= math.ceil(math.log2(len(ORDER))) + 1


@pytest.mark.parametrize("seed", range(10))
def test_all_members_of_a_joint_cause_are_found(seed):
    draw = random.Random(seed)
    cause = sorted(draw.sample(ORDER, draw.choice([2, 3])), key=ORDER.index)
    crosses, calls = counted(lambda chosen: chosen >= set(cause))
    assert find_set(ORDER, crosses, 8) == cause
    assert len(calls) <= len(cause) * (math.ceil(math.log2(len(ORDER))) + 2)
    assert ddmin(ORDER, crosses) == cause


def test_one_of_two_redundant_causes_is_enough():
    crosses, _ = counted(lambda chosen: bool(chosen & {"tap5", "tap60"}))
    assert find_set(ORDER, crosses, 8) == ["tap5"]


def test_a_cause_in_more_places_than_allowed_is_not_found():
    crosses, _ = counted(lambda chosen: len(chosen) > 50)
    assert find_set(ORDER, crosses, 4) is None


def test_both_sides_of_the_tipping_point_were_tried_where_effects_are_not_monotone():
    def crosses(chosen):
        return len(chosen) in (3, 4, 5, 40, 41) or len(chosen) > 77

    length = tipping_prefix(ORDER, (), crosses)
    assert crosses(frozenset(ORDER[:length])) and not crosses(frozenset(ORDER[: length - 1]))


def test_ddmin_gives_a_set_that_nothing_can_be_left_out_of():
    def crosses(chosen):
        return {"tap3", "tap50"} <= chosen or {"tap80", "tap81", "tap82"} <= chosen

    found = ddmin(ORDER, crosses)
    assert crosses(frozenset(found))
    assert not any(crosses(frozenset(found) - {one}) for one in found)
