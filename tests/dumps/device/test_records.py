"""Steps of a ring become a dump that reads like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.dumps.device.test_taps import make, outputs
from verify.dumps import digests
from verify.dumps.device.drain import Drain
from verify.dumps.device.layout import Keep
from verify.dumps.device.records import StepRecords
from verify.dumps.device.taps import ModuleTaps, output_taps
from verify.dumps.format import DumpWriter, open_dump
from verify.dumps.format.schema import Manifest, Model, Workload
from verify.errors import ArgumentError

NAMES = ["a#0", "b#0"]


def manifest() -> Manifest:
    return Manifest(run_id="r", workload=Workload(sequences=[]), model=Model(name="toy"))


@pytest.mark.parametrize("keep", ["digest", "summary", "words"])
@torch.no_grad()
def test_a_dump_of_two_steps(tmp_path: Path, keep: Keep) -> None:
    model, x = make("cpu")
    taps = ModuleTaps(model, output_taps(model, keep), "cpu", inputs=("lengths",))
    drain = Drain(taps.buffers)
    lengths = torch.ones(2)
    positions = np.array([[0, 1, 2], [-1, 0, 1]])
    with DumpWriter(tmp_path / "run", manifest()) as writer:
        records = StepRecords(writer, taps.buffers)
        with taps.attached():
            for step in range(2):
                drain.before()
                model(x + step, lengths=lengths)
                drain.after(1)
        for step, ((drained,)) in enumerate(drain.collect()):
            records.add(drained, np.where(positions < 0, -1, positions + 3 * step), NAMES)
    dump = open_dump(tmp_path / "run")
    assert dump.complete and len(dump.records()) == records.records
    for step in range(2):
        for tap, tensor in outputs(model, x + step, lengths=lengths).items():
            record = next(r for r in dump.records() if (r.step, r.tap) == (step, tap))
            words = tensor.reshape(6, -1).numpy().view(np.uint32)
            rows = dump.rows(record)
            assert (rows.digest == digests.row_digests(words, "float32")).all()
            assert rows.sequence.tolist() == ["a#0"] * 3 + [None, "b#0", "b#0"]
            assert rows.position.tolist() == [p + 3 * step if p >= 0 else -1
                                              for p in positions.reshape(-1)]  # fmt: skip
            if keep == "words":
                assert (dump.read_words(record) == words).all()
            assert (rows.sketch is not None) == (keep == "summary")
    inputs = [r for r in dump.records() if r.tap == "inputs.lengths"]
    assert [r.kept for r in inputs] == ["full", "full"]


@torch.no_grad()
def test_rows_that_are_no_positions_are_refused(tmp_path: Path) -> None:
    model, x = make("cpu")
    taps = ModuleTaps(model, output_taps(model), "cpu")
    drain = Drain(taps.buffers)
    with taps.attached():
        drain.before()
        model(x)
        drain.after(1)
    ((drained,),) = drain.collect()
    with DumpWriter(tmp_path / "run", manifest()) as writer, pytest.raises(
        ArgumentError, match="not positions of the step"
    ):  # fmt: skip
        StepRecords(writer, taps.buffers).add(drained, np.zeros((2, 1), np.int64), NAMES)
