"""Paired timing: the estimator on planted times, the rotation of inputs, and what is not timed.

No test asserts a time: a clock of the tests stands in for the real one.
"""

import itertools

import numpy as np
import pytest
import torch

from verify.endpoints import Case, Endpoint, EndpointSpec, compare_endpoints, speed
from verify.endpoints.result import SpeedCheck, State


def _inputs():
    return {"x": torch.arange(256.0), "scale": 2.0}


def _spec(b=lambda x, scale: x * scale):
    return EndpointSpec(
        endpoints={"a": Endpoint(lambda x, scale: x * scale), "b": Endpoint(b)},
        cases=[Case("one", _inputs)],
    )


def test_the_ratio_is_of_pairs_so_that_a_drift_cancels():
    drift = np.linspace(1.0, 10.0, 100)[:, None]  # the machine becomes ten times slower
    times = drift * np.array([1.0, 2.0, 2.0, 1.0])
    check = SpeedCheck(case="c", a="a", b="b", state=State.NOT_RUN)
    speed._fill(check, times)
    assert (check.ratio, check.low, check.high) == (2.0, 2.0, 2.0)
    assert check.state is State.NOTED and check.pairs == 100 and len(check.ratios) == 100


def test_the_interval_covers_the_median_about_as_often_as_it_says():
    random = np.random.default_rng(7)
    samples = 1.3 * random.lognormal(0.0, 0.2, (300, 60))
    inside = [low <= 1.3 <= high for low, high in map(speed.bootstrap, samples)]
    # 95 % nominal; the percentile interval of a median of 60 covers 93 to 95 %, and 300 draws have
    # a standard deviation of 1.4 %: 0.89 is three of them below 93 %.
    assert 0.89 <= np.mean(inside) <= 0.99


def test_the_interval_is_the_same_for_the_same_ratios():
    ratios = np.random.default_rng(1).normal(1.0, 0.1, 50)
    assert speed.bootstrap(ratios) == speed.bootstrap(ratios)


def test_calls_alternate_and_rotate_over_copies_larger_than_the_cache(monkeypatch):
    monkeypatch.setattr(speed, "cache_bytes", lambda _: 10 * 1024)
    sets, cache = speed.rotating_sets(_inputs())
    assert cache == 10 * 1024 and len(sets) == 21  # of 1 KiB: twice the cache and one more
    assert len({each["x"].data_ptr() for each in sets}) == 21
    assert all(torch.equal(each["x"], sets[0]["x"]) for each in sets)
    seen = []
    calls = [lambda index, who=who: seen.append((who, index)) for who in "ab"]
    speed._host_times(*calls, pairs=2, sets=1)
    assert "".join(who for who, _ in seen[2:]) == "abbaabba"
    assert [index for _, index in seen[2:]] == list(range(8))


def test_times_come_from_the_clock(monkeypatch):
    ticks = itertools.count(0.0, 0.25)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(ticks))
    times = speed._host_times(lambda i: None, lambda i: None, pairs=3, sets=1)
    assert times.tolist() == [[250.0] * 4] * 3


def test_a_comparison_with_speed_says_which_clock_and_how_warm(monkeypatch):
    monkeypatch.setattr(speed, "cache_bytes", lambda _: 1 << 40)
    result = compare_endpoints(_spec(), speed=5)
    (check,) = result.speed
    assert check.clock == "perf_counter, CPU" and check.pairs == 5
    assert check.reason == "warm: the inputs fit into the last cache"
    assert result.exit_code == 0


def test_an_endpoint_that_did_not_run_is_not_timed():
    result = compare_endpoints(_spec(lambda x, scale: None), speed=5)
    assert result.speed[0].state is State.NOT_RUN
    assert result.speed[0].reason == "not timed: b gave no output"


def test_an_endpoint_that_fails_while_it_is_timed_fails():
    calls = itertools.count()

    def tires(x, scale):
        if next(calls) > 3:
            raise RuntimeError("tired")
        return x * scale

    result = compare_endpoints(_spec(tires), speed=5)
    assert result.exit_code == 1 and "tired" in result.speed[0].reason


@pytest.mark.gpu
def test_on_a_gpu_events_keep_the_time_and_inputs_exceed_the_cache():
    case = Case("one", lambda: {"x": torch.ones(1 << 20, device="cuda")})
    same = Endpoint(lambda x: x * 2)
    spec = EndpointSpec(endpoints={"a": same, "b": same}, cases=[case])
    (check,) = compare_endpoints(spec, speed=20).speed
    assert check.clock == "CUDA events" and check.a_ms > 0 and check.reason == ""
    assert check.input_sets * check.input_bytes > check.cache_bytes > 1 << 20
