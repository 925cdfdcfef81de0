"""Memory that a call does not own: margins around a tensor, free positions of a paged cache."""

from __future__ import annotations

import torch

_MARGIN = 8192  # bytes; a multiple of every alignment that a kernel may ask for


def own_strides(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A copy of ``values`` with the strides of ``like`` (same shape), in memory of its own."""
    store = torch.zeros(_extent(like), dtype=values.dtype, device=values.device)
    copy = store.as_strided(like.shape, like.stride())
    copy.copy_(values)
    return copy


def _extent(tensor: torch.Tensor) -> int:
    """Elements from the first to the last one of a tensor in its storage."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


class Guarded:
    """A copy of a tensor, strides and all, between margins full of one byte.

    Args:
        byte: 0xFF reads as NaN in float16, bfloat16, float32 and E4M3.
    """

    def __init__(self, tensor: torch.Tensor, byte: int) -> None:
        size = _extent(tensor) * tensor.element_size()
        self._size, self._byte = size, byte
        room = size + -size % _MARGIN + 2 * _MARGIN
        self._store = torch.full((room,), byte, dtype=torch.uint8, device=tensor.device)
        flat = self._store[_MARGIN : _MARGIN + size].view(tensor.dtype)
        self.inner = flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())
        self.inner.copy_(tensor)

    def is_touched(self) -> bool:
        """Whether a margin changed. Waits for the device."""
        edges = torch.cat([self._store[:_MARGIN], self._store[_MARGIN + self._size :]])
        return bool((edges != self._byte).any())


def unowned_positions(
    blocks: int, page: int, table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """[blocks, page], bool: positions of a paged cache that no sequence owns.

    Args:
        table: [sequences, pages], page numbers. lengths: [sequences], live positions.
    """
    free = torch.ones(blocks, page, dtype=torch.bool)
    for pages, length in zip(table.cpu().long(), lengths.tolist(), strict=True):
        position = torch.arange(int(length))
        free[pages[position // page], position % page] = False
    return free
