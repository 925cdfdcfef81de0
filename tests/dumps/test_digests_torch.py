"""The torch forms give the bits of the numpy forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verify.dumps import digests, digests_torch, summaries
from verify.errors import ArgumentError
from verify.formats import FORMATS, word_dtype

SIGNED = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def random_rows(dtype: str, length: int) -> tuple[np.ndarray, torch.Tensor]:
    """Seven rows of every kind of bit pattern, as numpy and as torch words."""
    kind = word_dtype(dtype)
    top = {"bool": 1, "float4_e2m1fn": 15}.get(dtype, np.iinfo(kind).max)
    rows = np.random.default_rng(length).integers(0, top, (7, length), dtype=kind, endpoint=True)
    return rows, torch.from_numpy(rows.view(SIGNED[kind.itemsize]))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("length", [0, 1, 17, 200])
def test_same_bits(dtype: str, length: int) -> None:
    rows, tensor = random_rows(dtype, length)
    for offset in (0, 5):
        expected = digests.row_digests(rows, dtype, offset)
        assert (digests_torch.row_digests(tensor, dtype, offset) == expected).all()
        sketches = summaries.row_sketches(rows, dtype, offset)
        assert digests_torch.row_sketches(tensor, dtype, offset).tobytes() == sketches.tobytes()
    statistics = summaries.row_statistics(rows, dtype)
    assert digests_torch.row_statistics(tensor, dtype).tobytes() == statistics.tobytes()


def test_a_tensor_becomes_words_by_a_view() -> None:
    tensor = torch.tensor([[1.5, -0.0]], dtype=torch.bfloat16)
    view = digests_torch.as_words(tensor)
    assert view.data_ptr() == tensor.data_ptr()
    assert view.tolist() == [[0x3FC0, -0x8000]]


def test_other_words_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"row matrix of raw words[\s\S]*as_words"):
        digests_torch.row_digests(torch.zeros(2, 2), "float32")


def strided(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same words at other strides: every row and every element apart, or columns first."""
    if layout == "columns first":
        return tensor.t().contiguous().t()
    rows, elements = tensor.shape
    wide = torch.full((2 * rows, 3 * elements), 7, dtype=tensor.dtype, device=tensor.device)
    wide[::2, 1::3] = tensor
    return wide[::2, 1::3]


@pytest.mark.parametrize("layout", ["apart", "columns first"])
@pytest.mark.parametrize(
    "device", [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_strides_change_no_digest(dtype: str, device: str, layout: str) -> None:
    rows, tensor = random_rows(dtype, 96)
    view = strided(tensor.to(device), layout)
    assert not view.is_contiguous()
    assert (digests_torch.row_digests(view, dtype) == digests.row_digests(rows, dtype)).all()
    sketches = summaries.row_sketches(rows, dtype)
    assert digests_torch.row_sketches(view, dtype).tobytes() == sketches.tobytes()
    statistics = summaries.row_statistics(rows, dtype)
    assert digests_torch.row_statistics(view, dtype).tobytes() == statistics.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FORMATS)
def test_same_bits_on_the_device(dtype: str) -> None:
    rows, tensor = random_rows(dtype, 200)
    device = tensor.to("cuda")
    assert (digests_torch.row_digests(device, dtype) == digests.row_digests(rows, dtype)).all()
    sketches = summaries.row_sketches(rows, dtype)
    assert digests_torch.row_sketches(device, dtype).tobytes() == sketches.tobytes()
    statistics = summaries.row_statistics(rows, dtype)
    assert digests_torch.row_statistics(device, dtype).tobytes() == statistics.tobytes()
