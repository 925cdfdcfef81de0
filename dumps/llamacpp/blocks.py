"""What llama.cpp multiplies: weights in blocks of few bits with activations in blocks of 8 bits.

Formats and roundings as in ggml (https://github.com/ggml-org/ggml, src/ggml-common.h,
src/ggml-quants.c): activations take the format that goes with that of the weight.

- ``Q8_0`` and ``Q8_1``, blocks of 32 with largest magnitude m: d = m / 127 in float32, the integers
  are x * (127 / m) to the nearest, and d is stored as float16. ``Q8_1`` also stores s = d * (sum of
  the integers) as float16, which is multiplied with the minimum of the weight's block.
- ``Q8_K``, blocks of 256 with the element m of largest magnitude: the integers are x * (-127 / m) to
  the nearest, and d = 1 / (-127 / m) stays float32.
- ``F16``, ``BF16``, ``F32``: each activation rounded to that format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.dumps.llamacpp.gguf_file import open_gguf
from verify.errors import ModelError
from verify.reference.layers.grid import round_to

BLOCK = 32
SUPER = 256
ACTIVATIONS = {
    "Q4_0": "Q8_0", "Q5_0": "Q8_0", "Q8_0": "Q8_0", "Q4_1": "Q8_1", "Q5_1": "Q8_1",
    "Q2_K": "Q8_K", "Q3_K": "Q8_K", "Q4_K": "Q8_K", "Q5_K": "Q8_K", "Q6_K": "Q8_K",
    "F16": "F16", "BF16": "BF16", "F32": "F32",
}  # fmt: skip
"""Format of a weight -> that of the activations it is multiplied with (``vec_dot_type``)."""
_WIDE = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [rows, columns]; ``scaled`` + ``minimum`` (repeated over its block of 32) is the weight.

    ``minimum`` [rows, columns / 32] is None where the minimum is multiplied with the activations
    themselves, or there is none. ``size`` [rows, columns]: magnitudes that are added up where they
    are not those of ``scaled``.
    """

    kind: str
    scaled: Values
    minimum: Values | None = None
    size: Values | None = None

    @property
    def activations(self) -> str:
        return ACTIVATIONS.get(self.kind, "Q8_0")

    @property
    def roundings(self) -> int:
        """Of float32, that a product of a row goes through at most, in whatever order it is summed.

        A block is summed as integers, exactly; its number is the product of two scales and the sum (2
        roundings), plus the minimum (2), added over all blocks, and over at most 8 lanes of a vector.
        """
        columns = int(self.scaled.shape[1])
        if self.activations in _WIDE:
            return columns + 8
        return columns // (SUPER if self.activations == "Q8_K" else BLOCK) + 12


@lru_cache(maxsize=8)
def read_weight(path: Path, name: str) -> Weight:
    """A weight of a GGUF file.

    Raises:
        ModelError: no such tensor, or a format without a model.
    """
    file = open_gguf(path)
    kind, raw, columns = file.raw(name)
    rows = len(raw)
    if kind not in ACTIVATIONS:
        raise ModelError(
            "no model of products with weights of this format", where=name, found=kind,
            allowed=", ".join(ACTIVATIONS),
        )  # fmt: skip
    values = file.values(name).astype(np.float64)
    if kind in ("Q4_1", "Q5_1"):  # float16 scale and minimum stand first
        blocks = raw.reshape(rows, columns // BLOCK, -1)
        minimum = _half(blocks[..., 2:4])[..., 0]
        codes = _codes_above_minimum(blocks, kind)
        return Weight(kind, _flat(codes * _half(blocks[..., :2])), minimum)
    if kind in ("Q2_K", "Q4_K", "Q5_K"):
        low = _minima(raw.reshape(rows, columns // SUPER, -1), kind)
        repeated = np.repeat(low, SUPER // low.shape[-1], axis=-1).reshape(rows, columns)
        return Weight(kind, values, None, np.abs(values) + 2 * repeated)
    return Weight(kind, values)


def product(
    x: NDArray[np.float32], weight: Weight, *, divided: bool = False
) -> tuple[Values, Values]:
    """What llama.cpp computes of rows ``x`` [rows, columns] but for the roundings of its float32
    sums, and the sum of the magnitudes that it adds up; both [rows, outputs], float64.

    Args:
        divided: the other spelling of the rounding of blocks of 32: x * (1 / d), halves away from zero.
    """
    x = np.asarray(x, np.float32)
    size = np.abs(weight.scaled) if weight.size is None else weight.size
    kind = weight.activations
    if kind in _WIDE:
        rounded = round_to(x.astype(np.float64), _WIDE[kind])
        return rounded @ weight.scaled.T, np.abs(rounded) @ size.T
    if kind == "Q8_K":
        rounded = _in_super_blocks(x)
        return rounded @ weight.scaled.T, np.abs(rounded) @ size.T
    codes, scale = _in_blocks(x.reshape(len(x), -1, BLOCK), divided)
    stored = scale.astype(np.float16).astype(np.float64)
    rounded = (codes * stored).reshape(len(x), -1)
    exact, total = rounded @ weight.scaled.T, np.abs(rounded) @ size.T
    if weight.minimum is not None:
        sums = (scale[..., 0] * codes.sum(axis=-1).astype(np.float32)).astype(np.float16)
        exact += sums.astype(np.float64) @ weight.minimum.T
        total += np.abs(sums.astype(np.float64)) @ np.abs(weight.minimum).T
    return exact, total


def _in_blocks(blocks: Any, divided: bool) -> tuple[Values, NDArray[np.float32]]:
    """Integers and float32 scale of blocks [rows, blocks, 32]."""
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = largest / np.float32(127)
    some = largest > 0
    one, by = (np.float32(1), scale) if divided else (np.float32(127), largest)
    inverse = np.divide(one, by, out=np.zeros_like(largest), where=some)
    scaled = blocks * inverse
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)) if divided else np.rint(scaled)
    return codes.astype(np.float64), scale


def _in_super_blocks(x: NDArray[np.float32]) -> Values:
    """Rows as Q8_K holds them."""
    blocks = x.reshape(len(x), -1, SUPER)
    at = np.abs(blocks).argmax(axis=-1, keepdims=True)
    top = np.take_along_axis(blocks, at, axis=-1)
    inverse = np.divide(np.float32(-127), top, out=np.zeros_like(top), where=top != 0)
    codes = np.minimum(np.rint(blocks * inverse), 127)
    step = np.divide(np.float32(1), inverse, out=np.zeros_like(top), where=top != 0)
    return (codes.astype(np.float64) * step.astype(np.float64)).reshape(len(x), -1)


def _codes_above_minimum(blocks: NDArray[np.uint8], kind: str) -> Values:
    """Integers of Q4_1 and Q5_1: low halves of all bytes, then the high ones."""
    packed = blocks[..., 4:] if kind == "Q4_1" else blocks[..., 8:]
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1)
    if kind == "Q5_1":
        fifth = np.unpackbits(np.ascontiguousarray(blocks[..., 4:8]), axis=-1, bitorder="little")
        codes = codes | (fifth << 4)
    return codes.astype(np.float64)


def _minima(blocks: NDArray[np.uint8], kind: str) -> Values:
    """Magnitudes of the minima of a super block's parts, [rows, blocks, parts]."""
    if kind == "Q2_K":
        return np.abs((blocks[..., :16] >> 4) * _half(blocks[..., 82:84]))
    s = blocks[..., 4:16].astype(np.int64)
    # 6 bits each; get_scale_min_k4 in ggml-quants.c.
    minima = np.concatenate([s[..., 4:8] & 63, (s[..., 8:] >> 4) | (s[..., 4:8] >> 6 << 4)], -1)
    return np.abs(minima * _half(blocks[..., 2:4]))


def _half(words: NDArray[np.uint8]) -> Values:
    return np.ascontiguousarray(words).view(np.float16).astype(np.float64)


def _flat(blocks: Any) -> Values:
    return np.asarray(blocks, np.float64).reshape(len(blocks), -1)
