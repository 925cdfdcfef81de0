"""Checks that every kernel makes on its tensors before a launch."""

from __future__ import annotations

import torch
from torch import Tensor

from verify.gpu.errors import DeviceError, DtypeError, LayoutError, ShapeError


def check_device(tensors: dict[str, Tensor]) -> torch.device:
    """The one device of all tensors: CUDA or CPU. Raises DeviceError."""
    devices = {name: tensor.device for name, tensor in tensors.items()}
    first = next(iter(devices.values()))
    for name, device in devices.items():
        if device != first:
            raise DeviceError(
                "tensors lie on several devices", where=name, found=device, allowed=first
            )
    if first.type not in ("cuda", "cpu"):
        raise DeviceError("not a CUDA tensor", found=first, allowed="cuda (or cpu: the oracle)")
    return first


def check_dtype(name: str, tensor: Tensor, allowed: torch.dtype) -> None:
    """Raise DtypeError unless ``tensor`` is of type ``allowed``."""
    if tensor.dtype != allowed:
        raise DtypeError("wrong dtype", where=name, found=tensor.dtype, allowed=allowed)


def check_dims(name: str, tensor: Tensor, axes: str) -> None:
    """Raise ShapeError unless ``tensor`` has as many axes as ``axes`` has words."""
    if tensor.dim() != len(axes.split()):
        raise ShapeError(
            "wrong number of axes", where=name, found=tuple(tensor.shape), allowed=f"[{axes}]"
        )


def check_contiguous(name: str, tensor: Tensor) -> None:
    """Raise LayoutError unless ``tensor`` is contiguous."""
    if not tensor.is_contiguous():
        raise LayoutError(
            "not contiguous",
            where=name,
            found=f"strides {tuple(tensor.stride())}",
            allowed="row-major without gaps",
            hint=f"pass {name}.contiguous()",
        )


def check_aligned(name: str, tensor: Tensor, alignment: int = 16) -> None:
    """Raise LayoutError unless the data starts at a multiple of ``alignment`` bytes."""
    if tensor.data_ptr() % alignment:
        raise LayoutError(
            "misaligned base address",
            where=name,
            found=f"{tensor.data_ptr() % alignment} bytes past a multiple of {alignment}",
            allowed=f"a multiple of {alignment} bytes",
            hint=f"pass {name}.clone()",
        )


def check_out(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise unless ``out`` can take a result of ``shape`` and ``dtype``, contiguous."""
    check_dtype("out", out, dtype)
    if tuple(out.shape) != shape:
        raise ShapeError("wrong shape", where="out", found=tuple(out.shape), allowed=shape)
    check_contiguous("out", out)
    check_aligned("out", out)
