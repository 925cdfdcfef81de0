"""Keys that a cache makes anew at each read: only the read is at fault, never the core."""

import pytest

from tests.support.toy_pairs import Side, pair
from verify.replay.result import Status
from verify.replay.run import Models, replay
from verify.selftest.fault import Place
from verify.selftest.module_faults import MODULE_FAULTS
from verify.selftest.sizes import Size

READ = "model.layers.1.self_attn.attn.in.k"
CORE = "model.layers.1.self_attn.attn.out"


def replayed(folder, name, size=Size.GROSS):
    fault = next(f for f in MODULE_FAULTS if f.name == name)
    place = Place(layer=1, head=1, size=size, seed=0)
    a, b = pair(
        folder, Side(dtype="bf16"), Side(dtype="bf16", plant=lambda m: fault.plant(m, place))
    )
    result = replay(a.dump, b.dump, Models(a.implementation, b.implementation))
    return {tap.tap: tap for tap in result.taps}


@pytest.mark.parametrize("name", ["key scale on keys that have none", "stale key"])
def test_the_core_is_given_the_keys_of_every_earlier_step(tmp_path, name):
    found = replayed(tmp_path, name)
    assert found[CORE].status is Status.INHERITED
    assert found[READ].status not in (Status.ROUNDING, Status.INHERITED, Status.EQUAL)


def test_a_read_that_no_format_explains_is_a_defect(tmp_path):
    found = replayed(tmp_path, "key scale on keys that have none")
    assert found[READ].status is Status.DEFECT


def test_a_read_that_a_narrow_format_could_explain_stays_open(tmp_path):
    found = replayed(tmp_path, "key scale on keys that have none", Size.MODERATE)
    assert found[READ].status is Status.UNCHECKED
    assert found[CORE].status is Status.INHERITED
