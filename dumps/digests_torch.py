"""Digests, sketches and statistics of torch tensors where they are: the same bits as the numpy
forms in ``digests`` and ``summaries``, from signed 64-bit arithmetic that wraps.

The input of every function is a row matrix of raw words as integers: uint8, int16, int32 or int64
``[rows, elements]``, the tensor viewed as the signed (or uint8) type of its width.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from verify.dumps import digests, summaries
from verify.errors import ArgumentError
from verify.formats import decode, get_format, word_dtype

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOATS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "complex64": torch.float32,
}
_INTEGERS = {"int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64}


def as_words(matrix: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor [rows, elements] of any dtype as the words that this module takes."""
    return matrix.view(_WORDS[matrix.element_size()])


@lru_cache(maxsize=64)
def _weights(start: int, count: int, device: str) -> torch.Tensor:
    return torch.from_numpy(digests.weights(start, count).view(np.int64).copy()).to(device)


def partial_sums(words: torch.Tensor, dtype_name: str, offset: int = 0) -> torch.Tensor:
    """Sums before finalising, int64 ``[rows]`` with the bits of the unsigned sum, on the device.

    Raises:
        ArgumentError: words of another width or shape.
    """
    _check(words, dtype_name)
    scale = digests.lanes_per_element(dtype_name)
    terms = _view(words, torch.int32) if scale == 2 else words
    mask = (1 << (8 * min(terms.element_size(), 4))) - 1
    # The mask makes the widening an extension by zeros; products and sums wrap modulo 2^64.
    wide = terms.to(torch.int64) & mask
    return (wide * _weights(offset * scale, terms.shape[1], str(words.device))).sum(dim=1)


def row_digests(words: torch.Tensor, dtype_name: str, offset: int = 0) -> NDArray[np.uint64]:
    """As :func:`verify.dumps.digests.row_digests`, uint64 ``[rows]`` in host memory."""
    sums = partial_sums(words, dtype_name, offset).cpu().numpy().view(np.uint64)
    return digests.finalise(sums, dtype_name, words.shape[1])


def row_sketches(words: torch.Tensor, dtype_name: str, offset: int = 0) -> NDArray[np.float32]:
    """As :func:`verify.dumps.summaries.row_sketches`, float32 ``[rows, 16]`` in host memory."""
    values = _finite(_values(words, dtype_name))
    scale = 2 if get_format(dtype_name).kind == "complex" else 1
    plan = summaries.sketch_plan(offset * scale, values.shape[1])
    source = torch.from_numpy(plan.source).to(values.device)
    sign = torch.from_numpy(plan.sign).to(values.device)
    signed = _padded(values, plan)[:, source] * sign
    total = _tree_sum(signed.reshape(len(words), plan.groups, summaries.BUCKETS))
    return np.asarray(total.to(torch.float32).cpu().numpy())


def row_statistics(words: torch.Tensor, dtype_name: str) -> NDArray[np.float64]:
    """As :func:`verify.dumps.summaries.row_statistics`, float64 ``[rows, 7]`` in host memory."""
    values = _values(words, dtype_name)
    finite = _finite(values)
    plan = summaries.sketch_plan(0, values.shape[1])
    grouped = _padded(finite, plan).reshape(len(words), plan.groups, summaries.BUCKETS)
    largest = torch.zeros(len(words), dtype=torch.float64, device=words.device)
    if values.shape[1]:
        largest = finite.abs().amax(dim=1)
    columns = (
        largest,
        _tree_sum(_tree_sum(grouped)),
        _tree_sum(_tree_sum(grouped * grouped)),
        values.isnan().sum(dim=1),
        values.isposinf().sum(dim=1),
        values.isneginf().sum(dim=1),
        (values == 0.0).sum(dim=1),
    )
    return np.asarray(torch.stack([c.to(torch.float64) for c in columns], dim=1).cpu().numpy())


def _values(words: torch.Tensor, dtype_name: str) -> torch.Tensor:
    """Exact values as float64; complex64 as pairs of real numbers."""
    _check(words, dtype_name)
    if dtype_name in _FLOATS:
        return _view(words, _FLOATS[dtype_name]).to(torch.float64)
    if dtype_name in _INTEGERS:
        return _view(words, _INTEGERS[dtype_name]).to(torch.float64)
    if words.element_size() == 1:  # bool, uint8 and the 8-bit floats: one table of 256 values
        codes = np.arange(256, dtype=np.uint8)
        codes &= np.uint8((1 << get_format(dtype_name).bits) - 1)
        table = torch.from_numpy(decode(codes, dtype_name).astype(np.float64)).to(words.device)
        return table[words.long()]
    host = words.cpu().numpy().view(word_dtype(dtype_name))
    return torch.from_numpy(decode(host, dtype_name).astype(np.float64)).to(words.device)


def _view(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same bits as another dtype; torch refuses to view an empty tensor as a narrower one."""
    if words.numel():
        return words.contiguous().view(dtype)
    scale = words.element_size() // dtype.itemsize
    return words.new_empty((words.shape[0], words.shape[1] * scale), dtype=dtype)


def _finite(values: torch.Tensor) -> torch.Tensor:
    return values.where(
        values.isfinite(), torch.zeros((), dtype=torch.float64, device=values.device)
    )


def _padded(values: torch.Tensor, plan: summaries.SketchPlan) -> torch.Tensor:
    behind = plan.groups * summaries.BUCKETS - plan.lead - values.shape[1]
    return torch.nn.functional.pad(values, (plan.lead, behind))


def _tree_sum(terms: torch.Tensor) -> torch.Tensor:
    """The order of :func:`verify.dumps.summaries.tree_sum`."""
    n = terms.shape[1]
    if n == 0:
        return terms.sum(dim=1)
    while n > 1:
        half = (n + 1) // 2
        carried = terms[:, n - half : half]
        terms = torch.cat((terms[:, : n - half] + terms[:, half:n], carried), dim=1)
        n = half
    return terms[:, 0]


def _check(words: torch.Tensor, dtype_name: str) -> None:
    expected = _WORDS[word_dtype(dtype_name).itemsize]
    if words.dim() != 2 or words.dtype != expected:
        raise ArgumentError(
            "a row matrix of raw words is needed",
            where="words",
            found=f"{words.dtype} with {words.dim()} axes",
            allowed=f"{expected} [rows, elements] for {dtype_name}",
            hint="as_words(matrix) gives them",
        )
