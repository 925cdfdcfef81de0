"""From a CUDA device to the architecture that kernels are built for."""

from __future__ import annotations

import functools

import torch

from verify.gpu.compile.limits import PORTABLE_ARCHS
from verify.gpu.errors import ArchitectureError, KernelArgumentError
from verify.gpu.table import VARIANTS, get_variant

AUTO = "auto"


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


def choose_variant(
    name: str, operation: str, preference: tuple[str, ...], device_index: int
) -> tuple[str, str]:
    """Name and architecture of the build that answers ``name`` on a device.

    Args:
        name: a variant, or ``"auto"``: the first of ``preference`` with a build for the chip.
        operation: what the variant must implement.

    Raises ArchitectureError when there is no build for the chip and KernelArgumentError when the
    variant implements something else.
    """
    chip = device_arch(device_index)
    for candidate in preference if name == AUTO else (name,):
        variant = get_variant(candidate)
        if variant.operation != operation:
            raise KernelArgumentError(
                f"not a {operation} kernel",
                where="variant",
                found=name,
                allowed=", ".join(v.name for v in VARIANTS.values() if v.operation == operation),
            )
        if arch := variant_arch(variant.archs, chip):
            return candidate, arch
    raise ArchitectureError(
        "this kernel has no build for the GPU at hand",
        where=name,
        found=chip,
        allowed=", ".join(get_variant(name).archs),
        hint="variant='auto' takes one that has",
    )
