"""Masks that are a class of their own: a capture changes nothing, and records what they mask."""

import pytest
import torch
from torch import nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from verify.dumps.capture import capture
from verify.dumps.format import open_dump

QUERIES, KEYS = 3, 7


class Core(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.bias = bias(QUERIES, KEYS)

    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=self.bias, enable_gqa=True
        )


class Model(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.core = Core(bias)

    def forward(self, q, k, v):
        return self.core(q, k, v)


@pytest.mark.parametrize(
    ("bias", "last"), [(causal_lower_right, [4, 5, 6]), (causal_upper_left, [0, 1, 2])]
)
def test_the_mask_is_what_it_is_without_a_capture(tmp_path, bias, last):
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, QUERIES, 8, generator=draw)
    k, v = (torch.randn(1, 2, KEYS, 8, generator=draw) for _ in range(2))
    model = Model(bias)
    with torch.no_grad():
        bare = model(q, k, v)
        with (
            capture(model, tmp_path / "run", taps=["*attn*"]) as run,
            run.step(positions=torch.arange(KEYS - QUERIES, KEYS)[None], cached=KEYS - QUERIES),
        ):
            seen = model(q, k, v)
    assert torch.equal(bare, seen)
    dump = open_dump(tmp_path / "run")
    mask = next(r for r in dump.records() if r.tap == "core.attn.in.mask")
    words = dump.read_words(mask).view("int64").reshape(QUERIES, 3)
    assert words[:, 0].tolist() == [0] * QUERIES and words[:, 1].tolist() == last
