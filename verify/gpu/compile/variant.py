"""What one row of the kernel table says."""

from __future__ import annotations

from dataclasses import dataclass, field

from verify.gpu.compile.options import CompileOptions


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """One named build of a source.

    ``mass`` says what the softmax denominator sums: ``"rounded"`` probabilities (as the product
    with V uses them), ``"unrounded"`` FP32 ones, or ``"none"`` for a kernel without softmax.
    ``default_defines`` are the macros when the caller gives none.
    """

    name: str
    operation: str
    source: str
    entries: tuple[str, ...]
    archs: tuple[str, ...]
    mass: str
    summary: str
    options: CompileOptions = field(default_factory=CompileOptions)
    default_defines: tuple[tuple[str, str], ...] = ()
