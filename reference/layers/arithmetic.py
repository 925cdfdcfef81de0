"""What a kernel declares about its working precision: how it adds, and how good its functions are."""

from __future__ import annotations

from dataclasses import dataclass, field

from verify.errors import ArgumentError
from verify.reference.layers.accumulate import FP32_UNIT, SMALLEST_NORMAL_FP32, FmaChain
from verify.reference.layers.checks import check_count, check_number
from verify.reference.layers.truncate import TensorCore

__all__ = ["FP32_UNIT", "SMALLEST_NORMAL_FP32", "Accumulation", "Arithmetic"]

Accumulation = FmaChain | TensorCore


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Everything that a layer's kernel declares beyond its named roundings.

    Args:
        accumulate: how matrix products are added.
        row_chain: the longest chain of additions in a reduction along a row (norms, softmax);
            None: as long as the row, which covers every order.
        function_ulps: largest error of exp, tanh, erf, rsqrt, sin and cos, in FP32 ULPs of the
            result. 4 covers the vector libraries of CPU builds of torch (documented at 1.0) and
            the full-range CUDA functions (documented at 2); fast-math variants need more.
        erf_error: largest absolute error of erf where it enters GELU. CPU builds of torch use
            the polynomial of Abramowitz and Stegun 7.1.26 (1.5e-7) with a fast exponential in
            FP32: 7.5e-7 measured over 4e6 arguments in [-8, 8]; 2^-20 is 9.5e-7.
    """

    accumulate: Accumulation = field(default_factory=FmaChain)
    row_chain: int | None = None
    function_ulps: float = 4.0
    erf_error: float = 2.0**-20

    def __post_init__(self) -> None:
        if not isinstance(self.accumulate, FmaChain | TensorCore):
            raise ArgumentError(
                "unknown accumulation model",
                where="accumulate",
                found=repr(self.accumulate),
                allowed="FmaChain(...) or TensorCore(...)",
            )
        if self.row_chain is not None:
            check_count("row_chain", self.row_chain)
        check_number("function_ulps", self.function_ulps, least=0.0)
        check_number("erf_error", self.erf_error, least=0.0)

    @property
    def function_error(self) -> float:
        """Largest relative error of an elementary function."""
        return self.function_ulps * 2 * FP32_UNIT

    def chain_of(self, row: int) -> int:
        """Additions in the longest chain over a row of that many elements."""
        return min(self.row_chain or row, row)
