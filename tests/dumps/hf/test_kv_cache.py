"""The E4M3 cache rounds once, to nearest even, and saturates."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.support.toy_model import toy_llama
from verify.dumps.hf.kv_cache import E4M3Cache, new_cache, round_to_e4m3


def test_rounding_agrees_with_an_independent_codec():
    values = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    values = values.clamp(-448, 448)
    expected = values.numpy().astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert np.array_equal(round_to_e4m3(values).numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_saturation_is_explicit(dtype):
    beyond = torch.tensor([449.0, 465.0, 1e4, torch.inf, -470.0, -torch.inf], dtype=dtype)
    assert round_to_e4m3(beyond).tolist() == [448.0] * 4 + [-448.0] * 2
    assert round_to_e4m3(torch.tensor([torch.nan], dtype=dtype)).isnan().all()


def test_signed_zero_and_small_values():
    values = torch.tensor([-0.0, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10])
    rounded = round_to_e4m3(values)
    assert rounded.tolist() == [0.0, 2.0**-9, 0.0, 2.0**-9]  # half a unit goes to even, which is 0
    assert torch.signbit(rounded).tolist() == [True, False, False, False]


def test_every_reader_sees_rounded_values_and_old_ones_are_kept():
    config = toy_llama().config
    cache = new_cache("e4m3", config)
    assert isinstance(cache, E4M3Cache)
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(1, 2, 3, 16, generator=generator)
    key, value = cache.update(first, first * 2, 0)
    assert torch.equal(key, round_to_e4m3(first))
    assert torch.equal(value, round_to_e4m3(first * 2))
    more = torch.randn(1, 2, 1, 16, generator=generator)
    key, _ = cache.update(more, more, 0)
    assert torch.equal(key, round_to_e4m3(torch.cat([first, more], dim=2)))
    assert cache.get_seq_length() == 4
