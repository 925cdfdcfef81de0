"""What differs around the computation, and how much it weighs."""

import pytest

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.confounders import declared_formats, find_confounders
from verify.bisect.run import bisect


def dump(path, **options):
    with SyntheticRun(path, {"s": [1]}, **options) as run:
        pass
    return run.open()


def confounders(tmp_path, a, b):
    return find_confounders(dump(tmp_path / "a", **a), dump(tmp_path / "b", **b))


def test_equal_runs_have_none(tmp_path):
    same = {"settings": {"dtype": "float32"}, "env": {"torch": {"threads": 2}}}
    assert confounders(tmp_path, same, same) == []


@pytest.mark.parametrize(
    ("a", "b", "name", "weight"),
    [
        ({"settings": {"attn": "sdpa"}}, {"settings": {"attn": "eager"}}, "settings.attn", "declared"),
        ({"settings": {"threads": 1}}, {"settings": {"threads": 2}}, "settings.threads", "likely"),
        ({"env": {"torch": {"version": "1"}}}, {"env": {"torch": {"version": "2"}}},
         "env.torch.version", "likely"),
        ({"env": {"variables": {"MKL_CBWR": "AVX2"}}}, {"env": {"variables": {}}},
         "env.variables.MKL_CBWR", "likely"),
        ({"config": {"rope_theta": 1e4}}, {"config": {"rope_theta": 1e5}},
         "model.config.rope_theta", "likely"),
        ({"env": {"packages": {"gguf": "1"}}}, {"env": {"packages": {"gguf": "2"}}},
         "env.packages.gguf", "unlikely"),
    ],
)  # fmt: skip
def test_each_difference_is_named_and_weighed(tmp_path, a, b, name, weight):
    (found,) = confounders(tmp_path, a, b)
    assert (found.name, found.weight) == (name, weight)


def test_what_one_run_lacks_is_a_dash(tmp_path):
    (found,) = confounders(tmp_path, {"settings": {"prefill_chunk": 13}}, {})
    assert (found.a, found.b) == ("13", "-")


def test_the_declared_come_first(tmp_path):
    found = confounders(
        tmp_path,
        {"settings": {"attn": "sdpa"}, "env": {"cpu": "x", "python": "3.11"}},
        {"settings": {"attn": "eager"}, "env": {"cpu": "y", "python": "3.12"}},
    )
    assert [c.weight for c in found] == ["declared", "likely", "unlikely"]


@pytest.mark.parametrize(
    ("a", "b", "formats"),
    [
        ({"kv_cache": "native"}, {"kv_cache": "e4m3"}, ["float8_e4m3fn"]),
        ({"dtype": ["float32"]}, {"dtype": ["bfloat16"]}, ["float32", "bfloat16"]),
        ({"dtype": "fp32"}, {"dtype": "bf16"}, ["float32", "bfloat16"]),
        ({"kv_cache": "e4m3"}, {"kv_cache": "e4m3"}, []),
        ({"attn": "sdpa"}, {"attn": "eager"}, []),
    ],
)
def test_settings_that_declare_a_format(tmp_path, a, b, formats):
    found = declared_formats(confounders(tmp_path, {"settings": a}, {"settings": b}))
    assert list(found) == formats


def test_bisect_says_when_two_things_changed_at_once(tmp_path):
    env = [{"torch": {"threads": n}, "variables": {"OMP_NUM_THREADS": str(n)}} for n in (1, 2)]
    one = dump(tmp_path / "one", env=env[0])
    threads = dump(tmp_path / "threads", env=env[1])
    both = dump(tmp_path / "both", env=env[1], settings={"attn": "eager"})
    assert bisect(one, threads).changed_at_once == ""
    assert bisect(one, both).changed_at_once.startswith(
        "Two things changed at once (settings.attn, number of threads)"
    )
