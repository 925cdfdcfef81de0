"""Whole tensors out of row matrices, key rows of earlier steps included."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.toy_pairs import Side, record
from verify.dumps.format.materialise import Materialiser, from_row_matrix
from verify.errors import ArgumentError
from verify.replay.forward import run_forced
from verify.replay.sink import Sink
from verify.replay.steps import recorded_steps
from verify.replay.values import both_ways


def test_a_row_matrix_goes_back_to_its_axes():
    tensor = np.arange(2 * 3 * 4 * 5, dtype=np.uint32).reshape(2, 3, 4, 5)
    rows = tensor.transpose(0, 2, 1, 3).reshape(8, 15)  # b h t d: rows are (b, t)
    assert np.array_equal(from_row_matrix(rows, "b h t d", [2, 3, 4, 5]), tensor)
    with pytest.raises(ArgumentError, match="does not fill"):
        from_row_matrix(rows, "b h t d", [2, 3, 4, 6])


@pytest.mark.parametrize("batch", [None, 2])
def test_key_tensors_are_those_that_the_core_read(tmp_path, batch):
    prompts = ("Hello there", "Hi") if batch else ("Hello there",)
    side = Side(options={"prefill_chunk": 4, "prompts": prompts})
    run = record(tmp_path / "a", side)
    seen = {}

    class Spy(Sink):
        def record(self, tap, tensor, **more):
            if tap.endswith(("attn.in.k", "attn.in.v")):
                seen[self._step.index, tap] = tensor.detach().clone()
            return Sink.record(self, tap, tensor, **more)

    _, values, _ = both_ways(run.dump, run.dump)
    run_forced(run.implementation, recorded_steps(run.dump), Spy(values))
    materialiser = Materialiser(run.dump)
    checked = carried = 0
    for found in run.dump.records():
        if (found.step, found.tap) in seen:
            words, known = materialiser.tensor(found)
            read = seen[found.step, found.tap].numpy().view(np.uint32)
            assert np.array_equal(words[known], read[known])
            assert known.all() or batch  # padding in front of the shorter prompt
            checked, carried = checked + 1, carried + found.carried
    assert checked > 10 and carried > 50
