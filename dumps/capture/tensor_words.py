"""From a tensor to the words that a dump stores: a copy of its bits, taken at the tap."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import xxhash

from verify.errors import ModelError
from verify.formats import FORMATS

_WORD_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NAMES = {getattr(torch, name): name for name in FORMATS if hasattr(torch, name)}
_WORD_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def dtype_name(tensor: torch.Tensor, where: str) -> str:
    """Name of the tensor's dtype in ``verify.formats.FORMATS``.

    Raises:
        ModelError: the tensor is of a kind that dump format 1 has no words for.
    """
    name = _NAMES.get(tensor.dtype, "")
    if name and tensor.layout is torch.strided and tensor.device.type != "meta":
        return name
    name = str(tensor.dtype).removeprefix("torch.")
    kind = "dense" if tensor.layout == torch.strided else str(tensor.layout)
    found = f"dtype {name}, {kind}, device {tensor.device.type}"
    raise ModelError(
        "a tapped tensor cannot be stored in dump format 1",
        where=where,
        found=found,
        allowed="dense tensors in memory, of " + ", ".join(_NAMES.values()),
        hint="leave this tap out of the selection",
    )


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's raw bits as integers of the same width: same shape, strides and memory."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.detach().view(_WORD_VIEWS[tensor.element_size()])


def words(tensor: torch.Tensor) -> np.ndarray:
    """A copy of the raw bits, C-contiguous, of the tensor's shape, as unsigned words."""
    host = bits(tensor)
    if host.device.type != "cpu":
        host = host.cpu()
    copied = np.array(host.numpy(), order="C", copy=True)
    return copied.view(_WORD_DTYPES[tensor.element_size()])


def row_matrix(tensor: torch.Tensor, axes: str) -> np.ndarray:
    """Copy ``tensor`` into the row matrix [rows, row_length] of unsigned words.

    Token axes (``b``, ``t`` or ``s``) come first in that order, then the other axes as they
    stand, flattened row-major. Without a token axis the whole tensor is one row.
    """
    order, count = _row_order(axes)
    shape = [tensor.shape[axis] for axis in order]
    matrix = (math.prod(shape[:count]), math.prod(shape[count:]))
    in_place = order == tuple(range(len(order)))
    return words(tensor if in_place else tensor.permute(order)).reshape(matrix)


@lru_cache(maxsize=256)
def _row_order(axes: str) -> tuple[tuple[int, ...], int]:
    """Axes in the order of the row matrix, and how many of them count rows."""
    names = axes.split()
    rows = [names.index(axis) for axis in ("b", "t", "s") if axis in names]
    rest = [index for index in range(len(names)) if index not in rows]
    return tuple(rows + rest), len(rows)


def tensor_digest(tensor: torch.Tensor, where: str) -> str:
    """xxh3-128 hex digest of dtype, shape and words: the identity of a weight or outside value.

    The bytes hashed are ``<dtype>[<sizes joined by commas>]`` in ASCII, then the words, row-major
    and little-endian.
    """
    name = dtype_name(tensor, where)
    state = xxhash.xxh3_128(f"{name}[{','.join(map(str, tensor.shape))}]".encode())
    plain = bits(tensor).to("cpu").contiguous().numpy()
    state.update(plain.reshape(-1).view(np.uint8).data)
    return state.hexdigest()
