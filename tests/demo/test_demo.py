from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from verify.cli.app import app
from verify.demo.defect import choose, planted
from verify.demo.scenario import TOKENS


class Config:
    num_hidden_layers = 30
    num_key_value_heads = 3


def test_the_seed_decides_the_place_and_spares_the_outermost_layers():
    places = {choose(Config, seed) for seed in range(400)}
    assert choose(Config, 7) == choose(Config, 7)
    assert {place.layer for place in places} == set(range(1, 29))
    assert {place.kv_head for place in places} == {0, 1, 2}


def test_planting_is_undone_also_after_an_error():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    sound = registry["sdpa"]
    with pytest.raises(RuntimeError), planted(choose(Config, 1)):
        assert registry["sdpa"] is not sound
        raise RuntimeError
    assert registry["sdpa"] is sound


@pytest.mark.slow
def test_the_demo_finds_what_it_planted(tmp_path):
    """The real model from end to end; the seed is drawn anew each time, so no layer is favoured."""
    out = tmp_path / "demo"
    done = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    (layer, first, last) = re.search(
        r"Planted was this: in layer (\d+), query heads (\d+) to (\d+)", text
    ).groups()
    seed = re.search(r"verify demo --seed (\d+)", text)[1]
    assert f"planted DEFECT first at model.layers.{layer}.self_attn.attn.out" in text, seed
    # The last group of heads is told as "from 6 on".
    assert re.search(rf"heads ({first} to {last}|from {first} on) \(3 of 9\)", text), seed
    assert "kv-e4m3 PRECISION first at model.layers.0.self_attn.attn.in.k" in text
    assert "Generated token 1 of" in text and '" answer" in A and " sky" in B' in text
    # Which operation of layer 0 differs first depends on the processor's matrix library.
    assert re.search(r"chunked (UNRESOLVED|ROUNDING) first at model.layers.0\.", text)
    for pair in ("kv-e4m3", "chunked", "planted"):
        assert (out / f"report-{pair}" / "report.html").stat().st_size > 10_000
    assert TOKENS >= 2, "the flip of the 8-bit cache is at token 1"


def test_the_demo_overwrites_nothing(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    from verify.demo.run import Demo
    from verify.errors import DumpExistsError

    with pytest.raises(DumpExistsError, match="choose another one with --out"):
        Demo("smollm2", tmp_path, seed=0)
