"""Declared casts are told from defects; what cannot be replayed is refused with the way out."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.toy_pairs import Side, pair
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.errors import NotComparableError, UsageError
from verify.replay.checker import checker
from verify.replay.refuse import check_globs
from verify.replay.result import Status
from verify.replay.run import Models, replay


def replayed(first, second, **options):
    models = Models(first.implementation, second.implementation)
    return replay(first.dump, second.dump, models, **options)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_e4m3_cache_is_precision_in_every_layer(tmp_path, dtype):
    first, second = pair(tmp_path, Side(dtype), Side(dtype, options={"kv_cache": "e4m3"}), tokens=2)
    found = replayed(first, second)
    cast = [tap.tap for tap in found.taps if tap.status is Status.PRECISION]
    assert cast == [f"model.layers.{n}.self_attn.attn.in.{x}" for n in (0, 1) for x in "kv"]
    result = bisect(first.dump, second.dump, checkers=[checker(found, first.dump, second.dump)])
    assert result.verdict is Verdict.PRECISION
    blamed = {t for f in result.findings if f.verdict is Verdict.PRECISION for t in f.taps}
    assert blamed == set(cast)


def test_parts_add_up_and_every_row_is_accounted_for(tmp_path):
    found = replayed(*pair(tmp_path, Side(), Side(attn="eager"), tokens=2))
    # Differences of float32 numbers of like size are exact in float64.
    assert found.closure_error <= 1e-6 and found.faithful and found.passes == 4
    for tap in found.taps:
        assert tap.local_reverse is not None
        assert abs(tap.total - tap.inherited) <= tap.local * (1 + 1e-9)


def test_a_model_that_does_not_repeat_its_run_is_not_blamed_on_an_operation(tmp_path):
    first, second = pair(tmp_path, Side(), Side(attn="eager"), tokens=1)
    second.implementation.model = first.implementation.model
    found = replayed(first, second)
    assert not found.faithful
    unlike = [tap.tap for tap in found.taps if tap.status is Status.UNFAITHFUL]
    assert unlike == [f"model.layers.{n}.self_attn.attn.out" for n in (0, 1)]
    result = bisect(first.dump, second.dump, checkers=[checker(found, first.dump, second.dump)])
    assert result.verdict is Verdict.UNRESOLVED


def test_a_dump_without_tensors_says_what_to_capture(tmp_path):
    sides = Side(options={"level": "digest"}), Side(attn="eager", options={"level": "digest"})
    with pytest.raises(NotComparableError, match="there are no inputs to replay") as caught:
        replayed(*pair(tmp_path, *sides, tokens=1))
    assert "--level full" in caught.value.hint


def test_other_prompts_are_refused(tmp_path):
    first, _ = pair(tmp_path / "1", Side(), Side(), tokens=1)
    other = Side(options={"prompts": ("Other text",)})
    second, _ = pair(tmp_path / "3", other, other, tokens=1)
    with pytest.raises(NotComparableError) as caught:
        replayed(first, second)
    assert "--tape" in caught.value.hint


def test_a_glob_that_matches_nothing_is_refused(tmp_path):
    first, second = pair(tmp_path, Side(), Side(), tokens=1)
    with pytest.raises(UsageError, match="no tap of both runs matches"):
        check_globs(first.dump, second.dump, ["*.attn.nothing"])


def test_a_padded_batch_in_chunks_replays(tmp_path):
    """The shorter prompt begins, at position 0, in a later step than the longer one."""
    options = {"prompts": ("Hello there, how is it?", "Hi"), "prefill_chunk": 4}
    found = replayed(
        *pair(tmp_path, Side(options=options), Side("fp32", "eager", options), tokens=2)
    )
    assert found.faithful
    assert {tap.status for tap in found.taps} <= {Status.INHERITED, Status.ROUNDING}
