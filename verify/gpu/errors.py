"""What a caller of a kernel can get wrong, each as its own type. All are raised before a launch."""

from __future__ import annotations

from verify.errors import ArgumentError, UsageError, VerifyError


class KernelError(VerifyError):
    """Base of the errors of this package."""


class KernelArgumentError(KernelError, ArgumentError):
    """An argument outside the contract of a kernel."""


class DeviceError(KernelArgumentError):
    """A tensor on the wrong kind of device, or tensors on several devices."""


class DtypeError(KernelArgumentError, TypeError):
    """A tensor of a type that the kernel does not take."""


class ShapeError(KernelArgumentError):
    """A shape or a length outside the admitted table."""


class LayoutError(KernelArgumentError):
    """Strides, contiguity or the alignment of a base address."""


class SemanticsError(KernelArgumentError):
    """A mask, a scale or an option that the kernel does not implement."""


class ArchitectureError(KernelError, UsageError):
    """A GPU or a compile target for which the kernel has no build."""


class WorkspaceError(KernelError):
    """The scratch memory of a call is missing, too small, or cannot be allocated."""


class CompileError(KernelError):
    """The compiler is absent or refused the source; carries its whole log."""


class ResourceLimitError(CompileError):
    """A kernel needs more registers or shared memory than the architecture has."""


class StaleBuildError(KernelError):
    """A loaded module does not carry the build id that was asked for."""


class OracleMissingError(KernelError):
    """The CPU oracle of a kernel is not part of this installation."""
