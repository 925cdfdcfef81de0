"""Replay of windows: what lies between recorded taps is not judged as the one operation in front."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.toy_pairs import Side, pair
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.replay.checker import checker
from verify.replay.run import Models, replay

WINDOWS = {
    "prefill": {"steps": "0", "taps": ("default:model.layers.0.*", "logits")},
    "decode": {"steps": "1", "taps": ("default:model.layers.0.*", "logits")},
    "all steps, ends alone": {"taps": ("model.embed_tokens.out", "logits")},
    "first rows": {"rows": "0:20"},
}


@pytest.mark.parametrize("window", WINDOWS)
def test_other_layers_are_nobodys_defect(tmp_path: Path, window: str) -> None:
    """A cast of the cache in every layer, of which the window holds one: its output layer computes
    what it should, of an input that nobody recorded."""
    options = {"threads": 1, **WINDOWS[window]}
    a, b = pair(
        tmp_path, Side(options=options), Side(options={**options, "kv_cache": "e4m3"}), tokens=2
    )
    found = replay(a.dump, b.dump, Models(a.implementation, b.implementation))
    result = bisect(a.dump, b.dump, checkers=[checker(found, a.dump, b.dump)])
    blamed = [(f.verdict, f.title) for f in result.findings if f.verdict is Verdict.DEFECT]
    assert not blamed and result.exit_code == 1
    assert found.faithful
