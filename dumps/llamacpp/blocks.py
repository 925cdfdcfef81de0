"""What llama.cpp multiplies: weights in blocks of 4 or 8 bits with activations in blocks of 8 bits.

Formats and roundings as in ggml (https://github.com/ggml-org/ggml, src/ggml-common.h and
src/ggml-quants.c): of 32 activations with largest magnitude m, d = m / 127 in float32, the integers
are x * (127 / m) to the nearest, and d is stored as float16. A product with Q4_1 also takes the stored sum
s = d * (sum of the integers), rounded to float16, times the minimum of the weight's block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.errors import ModelError

BLOCK = 32
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [rows, columns]; ``scaled`` + ``minimum`` (repeated over its block of 32) is the weight.

    ``minimum`` [rows, columns / 32] is None for formats without one.
    """

    kind: str
    scaled: Values
    minimum: Values | None


def read_weight(path: Path, name: str) -> Weight:
    """A weight of a GGUF file in Q4_1 or Q8_0.

    Raises:
        ModelError: no such tensor, or another format.
    """
    tensors = _tensors(path)
    found = tensors.get(name)
    if found is None and name == "output.weight":  # tied to the embedding
        found = tensors.get("token_embd.weight")
    if found is None:
        raise ModelError("the GGUF file has no such tensor", where=path, found=name)
    columns, rows = (int(n) for n in found.shape)
    kind = found.tensor_type.name
    raw = np.asarray(found.data).reshape(rows, -1)
    if kind == "Q8_0":
        blocks = raw.reshape(rows, columns // BLOCK, 34)
        scale = _half(blocks[..., :2])
        return Weight(kind, _flat(blocks[..., 2:].view(np.int8) * scale), None)
    if kind == "Q4_1":
        blocks = raw.reshape(rows, columns // BLOCK, 20)
        codes = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
        return Weight(kind, _flat(codes * _half(blocks[..., :2])), _half(blocks[..., 2:4])[..., 0])
    raise ModelError(
        "no model of products with weights of this format", where=name, found=kind,
        allowed="Q4_1, Q8_0",
    )  # fmt: skip


def product(x: NDArray[np.float32], weight: Weight) -> tuple[Values, Values]:
    """What llama.cpp computes of rows ``x`` [rows, columns] but for the roundings of its float32
    sums, and the sum of the magnitudes that it adds up; both [rows, outputs], float64."""
    blocks = np.asarray(x, np.float32).reshape(len(x), -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = largest / np.float32(127)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(blocks * inverse).astype(np.float64)
    stored = scale.astype(np.float16).astype(np.float64)
    rounded = (codes * stored).reshape(len(x), -1)
    exact = rounded @ weight.scaled.T
    size = np.abs(rounded) @ np.abs(weight.scaled).T
    if weight.minimum is not None:
        sums = (scale[..., 0] * codes.sum(axis=-1).astype(np.float32)).astype(np.float16)
        exact += sums.astype(np.float64) @ weight.minimum.T
        size += np.abs(sums.astype(np.float64)) @ np.abs(weight.minimum).T
    return exact, size


@lru_cache(maxsize=2)
def _tensors(path: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


def _half(words: NDArray[np.uint8]) -> Values:
    return np.ascontiguousarray(words).view(np.float16).astype(np.float64)


def _flat(blocks: Any) -> Values:
    return np.asarray(blocks, np.float64).reshape(len(blocks), -1)
