"""A bit-exact integer model of NVIDIA tensor cores, FP16 or BF16 operands.

One fused step adds L products to an accumulator. Every term is truncated toward zero to a
multiple of ``2^(E-F)``, where E is the largest exponent among the L products and the accumulator;
the truncated terms are added exactly; the sum is rounded once (toward zero to float32, to nearest
even to float16). An exponent is that of the operands as they are stored: subnormals are not
normalised and neither is a product of 2 or more. E is at least -133. Steps run over k ascending.
Any NaN, infinity times zero, or infinities of both signs give the NaN 0x7FFFFFFF (0x7FFF in
float16), other infinities keep their sign, and every zero result is +0.

Sources: Fasi, Higham, Mikaitis, Pranesh, PeerJ CS 7:e330 (V100); Khattak and Mikaitis, arXiv
2512.07004 (V100, A100, H100, with hardware outputs); Xie et al., MMA-Sim, arXiv 2511.10909 (all
architectures). ``benchmarks/tensor_core_h200.py`` compares the model with an H200.
"""

from verify.reference.tensor_core.product import dot_rows, matrix_product
from verify.reference.tensor_core.units import ARCHITECTURES, INSTRUCTIONS, Unit, get_unit

__all__ = [
    "ARCHITECTURES",
    "INSTRUCTIONS",
    "Unit",
    "dot_rows",
    "get_unit",
    "matrix_product",
]
