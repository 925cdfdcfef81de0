"""Two implementations with other names, through a tap map: a Llama of transformers and a fused one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

pytest.importorskip("transformers")

from examples.fused_llama import fused_like, small_llama
from tests.support.llama_pair import run
from verify.dumps.format import Dump, open_dump
from verify.recapture import run as module
from verify.recapture.commands import Order, Ran
from verify.recapture.run import Plan, recapture


def faulty() -> nn.Module:
    """The fused form, whose second layer multiplies its last product by 1.5."""
    model = fused_like(small_llama())
    last = model.get_submodule("model.layers.1.mlp.down_proj")
    last.register_forward_hook(lambda module, args, out: out * 1.5)
    return model


def test_both_are_recorded_again_under_their_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"--command-a": small_llama, "--command-b": faulty}

    def again(dump: Dump, given: Any, order: Order, out: Path, option: str) -> Ran:
        run(models[option](), out, taps=order.taps, edges=order.edges, steps=str(order.steps))
        return Ran([option], 0)

    monkeypatch.setattr(module, "run_again", again)
    lean = {"edges": "none", "level": "digest"}
    a, b = (
        open_dump(run(build(), tmp_path / name, **lean))
        for name, build in (("a", small_llama), ("b", faulty))
    )
    found = recapture(a, b, tmp_path / "out", Plan(tap_map="vllm-llama"))
    assert all(each.repeats and each.rows for each in found.again)
    assert found.taps == ["default:model.layers.1.*"]
    proven = [origin.tap for origin in found.result.origins if origin.proven]
    assert "model.layers.1.mlp.down_proj.out" in proven
