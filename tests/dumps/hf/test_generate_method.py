"""Somebody's own `model.generate(...)` under a capture: steps and rows are found by themselves."""

from __future__ import annotations

import pytest
import torch

from tests.support.dump_reading import row_table
from tests.support.toy_model import LAYERS, toy_llama
from verify.dumps import capture
from verify.dumps.format import open_dump

IDS = torch.tensor([[0, 0, 0, 11, 12, 13, 14], [21, 22, 23, 24, 25, 26, 27]])
MASK = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
NEW = 4


@pytest.fixture(scope="module")
def expected():
    """Names of the key rows: every position that entered, of each sequence."""
    lengths = {"sequence#0": 4 + NEW - 1, "sequence#1": 7 + NEW - 1}
    return {
        (f"model.layers.{layer}.self_attn.attn.in.{part}", 0, name, position, 0)
        for layer in range(LAYERS)
        for part in "kv"
        for name, length in lengths.items()
        for position in range(length)
    }


@pytest.mark.parametrize(
    "options",
    [{}, {"cache_implementation": "static"}, {"use_cache": False}],
    ids=["growing", "preallocated", "recomputed"],
)
def test_the_rows_are_the_same_with_any_cache(tmp_path, options, expected):
    model = toy_llama()
    call = {"attention_mask": MASK, "max_new_tokens": NEW, "do_sample": False, **options}
    plain = model.generate(IDS, **call)
    with capture(model, tmp_path / "run"):
        captured = model.generate(IDS, **call)
    assert torch.equal(plain, captured)
    table = row_table(open_dump(tmp_path / "run"))  # refuses two rows of one name
    keys = {key for key in table if key[0].endswith(("attn.in.k", "attn.in.v"))}
    first_visits = {key for key in keys if key[4] == 0}
    assert first_visits == expected
    if "use_cache" not in options:  # recomputed keys may have other bits, and then other visits
        assert keys == expected
    entered = {key[2:4] for key in table if key[0] == "tokens.in"}
    assert entered == {key[2:4] for key in expected}
