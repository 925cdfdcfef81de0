"""Compile the kernels of ``kernels/`` on any machine, with or without a GPU."""

from verify.gpu.compile.build import KernelBuild, build_kernel
from verify.gpu.compile.limits import PORTABLE_ARCHS, ArchLimits, arch_limits
from verify.gpu.compile.nvrtc import Compiler, find_compiler, nvrtc_missing
from verify.gpu.compile.options import CompileOptions
from verify.gpu.compile.resources import Resources
from verify.gpu.compile.sass import sass_counts
from verify.gpu.compile.variant import KernelVariant

__all__ = [
    "PORTABLE_ARCHS",
    "ArchLimits",
    "CompileOptions",
    "Compiler",
    "KernelBuild",
    "KernelVariant",
    "Resources",
    "arch_limits",
    "build_kernel",
    "find_compiler",
    "nvrtc_missing",
    "sass_counts",
]
