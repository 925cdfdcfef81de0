"""What one thread block may use on each architecture."""

from __future__ import annotations

from dataclasses import dataclass

from verify.gpu.errors import ArchitectureError

KIB = 1024


@dataclass(frozen=True, slots=True)
class ArchLimits:
    """Limits of a thread block, from the table "Technical Specifications per Compute Capability"
    of the CUDA C++ Programming Guide. ``shared_bytes`` is the opt-in maximum."""

    arch: str
    shared_bytes: int
    block_registers: int = 65536
    thread_registers: int = 255


LIMITS = {
    limits.arch: limits
    for limits in (
        ArchLimits("sm_70", 96 * KIB),
        ArchLimits("sm_75", 64 * KIB),
        ArchLimits("sm_80", 163 * KIB),
        ArchLimits("sm_90", 227 * KIB),
        # sm_90a is sm_90 with the instructions that later chips do not keep (wgmma, setmaxnreg).
        ArchLimits("sm_90a", 227 * KIB),
    )
}

PORTABLE_ARCHS = ("sm_70", "sm_75", "sm_80", "sm_90")


def arch_limits(arch: str) -> ArchLimits:
    """Limits of ``arch``, for example ``"sm_70"``. Raises ArchitectureError for an unknown one."""
    try:
        return LIMITS[arch]
    except KeyError:
        raise ArchitectureError(
            "no kernel is built for this architecture",
            where="arch",
            found=arch,
            allowed=", ".join(LIMITS),
        ) from None
