"""Where weights lie in memory: aligned by default, elsewhere to repeat a run with mapped weights."""

import pytest
import torch

from verify.dumps.capture.manifest import weights_alignment
from verify.dumps.hf.load import own_aligned_memory


@pytest.mark.parametrize("alignment", [64, 32, 8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_placed_and_stay_the_same(alignment, dtype):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)).to(dtype)
    tied = model[0].weight
    before = [p.clone() for p in model.parameters()]
    own_aligned_memory(model, alignment)
    assert weights_alignment(list(model.parameters())) == alignment
    assert all(torch.equal(x, y) for x, y in zip(before, model.parameters(), strict=True))
    assert model[0].weight is tied
