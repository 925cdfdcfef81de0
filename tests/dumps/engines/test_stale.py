"""Graphs that read inputs of another step: found from what they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.dumps.engines.test_attach import PROMPTS, new_runner
from tests.support import engine_stubs as stubs
from verify.dumps.engines.graphs import attach_graphs
from verify.dumps.engines.stale import compare_inputs, snapshot, stale_inputs
from verify.dumps.format import Dump, open_dump


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    stubs.fake_vllm(monkeypatch)


def record(path: Path, stale: str | None = None, *, kind: str = "vllm", inputs: Any = None) -> Dump:
    """``stale``: from the third step on this stays what it was, as if nobody copied it."""
    runner = new_runner(kind, pad=4)
    fill, first = runner._fill, {}

    def filled(counts: Any, order: Any) -> Any:
        metadata, last, padded = fill(counts, order)
        now = runner.positions if stale == "positions" else getattr(metadata, stale or "seq_lens")
        key = (tuple(now.shape), padded)
        if stale is not None and key in first:
            if stale == "positions":
                runner.positions[:] = first[key]
            else:
                setattr(metadata, stale, first[key])
        first.setdefault(key, now.clone())
        return metadata, last, padded

    runner._fill = filled
    names = inputs or ("positions", "seq_lens", "slot_mapping")
    attached = attach_graphs(runner, path, engine=kind, inputs=names, step_bytes=1 << 18)
    with torch.inference_mode():
        stubs.serve(runner, PROMPTS, budget=64, tokens=7, every=1)
    attached.close()
    return open_dump(path)


def test_inputs_that_are_those_of_their_step(tmp_path: Path) -> None:
    dump = record(tmp_path / "run")
    assert {"inputs.positions", "inputs.seq_lens", "inputs.slot_mapping"} <= {
        r.tap for r in dump.records()
    }
    assert stale_inputs(dump) == []


@pytest.mark.parametrize(
    ("name", "kind"), [("positions", "other positions"), ("seq_lens", "does not advance")]
)
def test_an_input_that_nobody_copied(tmp_path: Path, name: str, kind: str) -> None:
    (found,) = stale_inputs(record(tmp_path / "run", stale=name))
    assert (found.name, found.kind) == (name, kind)
    assert found.steps and found.steps[0] > 0


def test_inputs_of_sglang_stand_in_its_batch(tmp_path: Path) -> None:
    dump = record(tmp_path / "run", kind="sglang", inputs=("positions", "no_such"))
    assert "inputs.positions" in {r.tap for r in dump.records()} and stale_inputs(dump) == []
    assert dump.manifest.capture["unmatched_taps"] == ["inputs.no_such"]


def test_capture_against_replay() -> None:
    table, lengths = torch.tensor([[1, 2]]), torch.tensor([7])
    captured = snapshot({"block_table": table, "lengths": lengths})
    lengths += 1  # copied into the memory that the graph reads
    good = snapshot({"block_table": table, "lengths": lengths})
    assert compare_inputs(captured, good) == compare_inputs(captured, good, read=good) == []
    other = snapshot({"block_table": torch.tensor([[1, 3]]), "lengths": lengths})
    (moved,) = compare_inputs(captured, other)
    assert (moved.name, moved.kind) == ("block_table", "moved")
    assert hex(table.data_ptr()) in moved.reason
    (unseen,) = compare_inputs(captured, other, read=good)
    assert (unseen.name, unseen.kind) == ("block_table", "not copied")
    half = snapshot({"block_table": torch.tensor([[9, 9]]), "lengths": lengths})
    (unlike,) = compare_inputs(captured, other, read=half)
    assert (unlike.name, unlike.kind) == ("block_table", "not what was given")
