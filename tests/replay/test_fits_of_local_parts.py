"""What an operation adds is described although everything above it differs as well."""

from tests.support.toy_pairs import Side, pair
from verify.bisect.run import bisect
from verify.replay.checker import checker
from verify.replay.result import Status
from verify.replay.run import Models, replay
from verify.selftest.core_faults import CORE_FAULTS
from verify.selftest.fault import Place
from verify.selftest.sizes import Size

CORE = "model.layers.1.self_attn.attn.out"


def test_the_ratio_and_the_heads_of_a_defect_above_rounding(tmp_path):
    fault = next(f for f in CORE_FAULTS if f.name == "value gain in one group of heads")
    place = Place(layer=1, head=1, size=Size.GROSS, seed=0)
    sides = (
        Side(dtype="bf16"),
        Side(dtype="bf16", attn="eager", plant=lambda m: fault.plant(m, place)),
    )
    a, b = pair(tmp_path, *sides)
    replayed = replay(a.dump, b.dump, Models(a.implementation, b.implementation))
    taps = {tap.tap: tap for tap in replayed.taps}
    assert taps[CORE].held_by == "heads from 2 on (2 of 4) hold 99 % of it"
    assert all(not tap.fits for tap in replayed.taps if tap.status is Status.ROUNDING)
    result = bisect(a.dump, b.dump, checkers=[checker(replayed, a.dump, b.dump)])
    told = next(f for f in result.findings if CORE in f.taps)
    assert "heads from 2 on (2 of 4)" in told.support


def test_the_fit_is_a_reason_of_the_finding(tmp_path):
    fault = next(f for f in CORE_FAULTS if f.name == "values read as FNUZ")
    place = Place(layer=1, head=0, size=Size.GROSS, seed=0)
    sides = Side(), Side(plant=lambda m: fault.plant(m, place))
    a, b = pair(tmp_path, *sides)
    replayed = replay(a.dump, b.dump, Models(a.implementation, b.implementation))
    core = next(tap for tap in replayed.taps if tap.tap == CORE)
    assert "B is A times 0.5 (a power of two) in heads 0 to 1" in core.fits[0]
    result = bisect(a.dump, b.dump)
    origin = next(o for o in result.origins if o.tap == CORE)
    assert "B is A times 0.5 (a power of two)" in origin.fits[0]
