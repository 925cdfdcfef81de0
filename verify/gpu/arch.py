"""From a CUDA device to the architecture that kernels are built for."""

from __future__ import annotations

import functools

import torch

from verify.gpu.compile.limits import PORTABLE_ARCHS
from verify.gpu.errors import ArchitectureError


@functools.cache
def device_arch(index: int) -> str:
    """``"sm_70"``, ``"sm_75"``, ``"sm_80"`` or ``"sm_90"`` for CUDA device ``index``.

    Raises ArchitectureError for others: the smaller shared memory of sm_86 and sm_89, for example,
    does not hold the sm_80 builds.
    """
    major, minor = torch.cuda.get_device_capability(index)
    arch = f"sm_{major}{minor}"
    if arch not in PORTABLE_ARCHS:
        raise ArchitectureError(
            "there is no kernel build for this GPU",
            where=torch.cuda.get_device_name(index),
            found=arch,
            allowed=", ".join(PORTABLE_ARCHS),
        )
    return arch


def variant_arch(archs: tuple[str, ...], device: str) -> str | None:
    """The build of a variant that runs on ``device``: its own, or the ``a`` build of it."""
    return next((arch for arch in (f"{device}a", device) if arch in archs), None)
