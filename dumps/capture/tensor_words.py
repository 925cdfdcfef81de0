"""From a tensor to the words that a dump stores: a copy of its bits, taken at the tap."""

from __future__ import annotations

import numpy as np
import torch
import xxhash

from verify.errors import ModelError
from verify.formats import FORMATS

_WORD_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WORD_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def dtype_name(tensor: torch.Tensor, where: str) -> str:
    """Name of the tensor's dtype in ``verify.formats.FORMATS``.

    Raises:
        ModelError: the tensor is of a kind that dump format 1 has no words for.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    kind = "dense" if tensor.layout == torch.strided else str(tensor.layout)
    if tensor.is_quantized or tensor.device.type == "meta" or kind != "dense":
        found = f"a {kind} tensor of dtype {name} on device {tensor.device.type}"
    elif name not in FORMATS:
        found = f"dtype {name}"
    else:
        return name
    raise ModelError(
        "a tapped tensor cannot be stored in dump format 1",
        where=where,
        found=found,
        allowed="dense tensors with memory, of " + ", ".join(FORMATS),
        hint="leave this tap out of the selection",
    )


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's raw bits as integers of the same width: same shape, strides and memory."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.view(_WORD_VIEWS[tensor.element_size()])


def words(tensor: torch.Tensor) -> np.ndarray:
    """A copy of the raw bits, C-contiguous, of the tensor's shape, as unsigned words."""
    host = bits(tensor).to("cpu", copy=tensor.device.type != "cpu")
    copied = np.array(host.numpy(), order="C", copy=True)
    return copied.view(_WORD_DTYPES[tensor.element_size()])


def row_matrix(tensor: torch.Tensor, axes: str) -> np.ndarray:
    """Copy ``tensor`` into the row matrix [rows, row_length] of unsigned words.

    Token axes (``b``, ``t`` or ``s``) come first in that order, then the other axes as they
    stand, flattened row-major. Without a token axis the whole tensor is one row.
    """
    names = axes.split()
    rows = [names.index(axis) for axis in ("b", "t", "s") if axis in names]
    rest = [index for index in range(len(names)) if index not in rows]
    n_rows = int(np.prod([tensor.shape[index] for index in rows], dtype=np.int64))
    length = int(np.prod([tensor.shape[index] for index in rest], dtype=np.int64))
    return words(tensor.permute(rows + rest)).reshape(n_rows, length)


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
