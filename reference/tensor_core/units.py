"""Which arithmetic an instruction has on which architecture: one table.

Evidence for a row: A, equal to published or own hardware outputs bit for bit; B, two independent
publications agree; C, one publication. Equal to an H200 in 72 million outputs, 10^6 for each kind
of operands (``benchmarks/tensor_core_h200.py``): m16n16k16, m16n8k16, m16n8k8 and m8n8k4 on sm_90,
m16n8k16 also with float16 output and with bfloat16 operands. Specials, the floor exponent and the
signs of zeros were read off there and are assumed to hold on the older architectures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verify.errors import ArgumentError

Operands = Literal["float16", "bfloat16"]
Output = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True)
class Unit:
    """The arithmetic of one dot product with accumulator.

    Args:
        products: L, the products of one fused step.
        fraction_bits: F, the bits kept below the largest exponent of a step (at least 23).
        operands, output: number formats of a and b, and of c and d.
        software: the routine that stands in for the instruction where the hardware lacks it:
            float32 fused multiply-adds over the L products, then one float32 addition of c, all
            to nearest even. ``fraction_bits`` has no meaning then.
        evidence: A, B or C, see the module.
        floor_exponent: the least that the largest exponent of a step can be. Only bfloat16 products
            are small enough to show it.
    """

    products: int
    fraction_bits: int
    operands: Operands = "float16"
    output: Output = "float32"
    software: bool = False
    evidence: str = "C"
    floor_exponent: int = -133

    def __post_init__(self) -> None:
        if self.products < 1 or not 23 <= self.fraction_bits <= 35:
            raise ArgumentError(
                "no tensor core works like this",
                where="unit",
                found=f"L={self.products}, F={self.fraction_bits}",
                allowed="L >= 1, 23 <= F <= 35",
            )


ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_90")
"""V100, T4, A100, H100 and H200."""

# Instruction: depth k. wmma m16n16k16 is split by the compiler into the machine's own shapes; the
# k-slices of one output element follow each other in ascending order on every architecture.
INSTRUCTIONS: dict[str, int] = {
    "m8n8k4": 4,
    "m16n8k8": 8,
    "m16n8k16": 16,
    "m16n16k16": 16,
    "wgmma": 16,
}

# (architecture, instruction): (L, F, software, evidence). An absent pair does not exist.
_TABLE: dict[tuple[str, str], tuple[int, int, bool, str]] = {
    ("sm_70", "m8n8k4"): (4, 23, False, "A"),
    ("sm_70", "m16n16k16"): (4, 23, False, "A"),  # 4 slices of HMMA.884
    ("sm_75", "m8n8k4"): (4, 23, False, "C"),
    ("sm_75", "m16n8k8"): (8, 24, False, "B"),
    ("sm_75", "m16n16k16"): (8, 24, False, "B"),
    ("sm_80", "m8n8k4"): (4, 23, True, "A"),
    ("sm_80", "m16n8k8"): (8, 24, False, "B"),
    ("sm_80", "m16n8k16"): (8, 24, False, "A"),  # the hardware rows are single steps of 8
    ("sm_80", "m16n16k16"): (8, 24, False, "B"),
    ("sm_90", "m8n8k4"): (4, 23, True, "A"),
    ("sm_90", "m16n8k8"): (8, 25, False, "A"),
    ("sm_90", "m16n8k16"): (16, 25, False, "A"),
    ("sm_90", "m16n16k16"): (16, 25, False, "A"),  # 2 halves of HMMA.16816, one step each
    ("sm_90", "wgmma"): (16, 25, False, "B"),
}

# bfloat16 entered with sm_80.
_BFLOAT16 = ("sm_80", "sm_90")


def get_unit(
    architecture: str,
    instruction: str = "m16n16k16",
    *,
    operands: Operands = "float16",
    output: Output = "float32",
) -> Unit:
    """The arithmetic of an instruction.

    Args:
        architecture: ``sm_70`` (V100), ``sm_75`` (T4), ``sm_80`` (A100), ``sm_90`` (H100, H200).
        instruction: a key of :data:`INSTRUCTIONS`; ``m16n16k16`` is ``nvcuda::wmma``.
        operands: format of a and b.
        output: format of c and d.

    Raises:
        ArgumentError: a combination that does not exist or whose arithmetic is not known.
    """
    _check("architecture", architecture, ARCHITECTURES)
    _check("instruction", instruction, tuple(INSTRUCTIONS))
    _check("operands", operands, ("float16", "bfloat16"))
    _check("output", output, ("float32", "float16"))
    if (architecture, instruction) not in _TABLE:
        raise ArgumentError(
            f"{architecture} has no {instruction}",
            where="instruction",
            found=instruction,
            allowed=", ".join(name for arch, name in _TABLE if arch == architecture),
        )
    products, fraction_bits, software, evidence = _TABLE[architecture, instruction]
    if operands == "bfloat16" and (
        architecture not in _BFLOAT16 or software or output != "float32"
    ):
        raise ArgumentError(
            "no such bfloat16 product",
            where="operands",
            found=f"{architecture} {instruction} with {output} output",
            allowed=f"{' and '.join(_BFLOAT16)}, not m8n8k4, float32 output",
        )
    if software and output != "float32":
        raise ArgumentError(
            f"the arithmetic of {instruction} with float16 output on {architecture} is not known",
            where="output",
            found=output,
            allowed="float32",
        )
    return Unit(products, fraction_bits, operands, output, software, evidence)


def _check(where: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise ArgumentError(
            f"unknown {where}", where=where, found=repr(found), allowed=", ".join(allowed)
        )
