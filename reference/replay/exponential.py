"""The exponential of a GPU as an interval: its bits are not published.

``ex2.approx.f32`` is known to a relative error only, so a replay either takes one admissible
function (``nearest``, ``scattered``) or an end of the interval (``low``, ``high``). ex2(0) = 1 is
exact on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError

Float32 = NDArray[np.float32]
Kind = Literal["nearest", "scattered", "low", "high"]

LOG2_E = np.float32(1.4426950408889634)


@dataclass(frozen=True, slots=True)
class Exponential:
    """An admissible ex2.

    Args:
        kind: ``nearest``: correctly rounded; ``scattered``: a fixed pseudo-random relative error
            within ``error`` for each argument, as a table-driven unit has; ``low``, ``high``: the
            ends of the interval.
        error: the largest relative error.
        seed: of ``scattered``.
    """

    kind: Kind = "nearest"
    error: float = 2.5 * 2.0**-23
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("nearest", "scattered", "low", "high"):
            raise ArgumentError(
                "no such exponential", where="kind", found=self.kind,
                allowed="nearest, scattered, low, high",
            )  # fmt: skip

    def exp(self, x: Float32) -> Float32:
        """e^x for x <= 0, float32: the rounding of x * log2 e, then ex2; 0 for -inf."""
        return self.exp2(x * LOG2_E)

    def exp2(self, t: Float32) -> Float32:
        """2^t, float32; NaN stays NaN."""
        with np.errstate(under="ignore"):
            exact = np.exp2(t.astype(np.float64))
            shifted = np.where(t == 0.0, exact, exact * (1.0 + self._relative(t)))
            return shifted.astype(np.float32)

    def _relative(self, t: Float32) -> NDArray[np.float64] | float:
        # One rounding to float32 follows, so half an ulp of the error is already spoken for.
        room = max(0.0, self.error - 2.0**-24)
        if self.kind == "nearest":
            return 0.0
        if self.kind == "scattered":
            return room * _hash(t, self.seed)
        return room if self.kind == "high" else -room


def _hash(t: Float32, seed: int) -> NDArray[np.float64]:
    """Pseudo-random numbers in [-1, 1) from the bits of t (multiply-xorshift, as in xxhash)."""
    bits = np.ascontiguousarray(t).view(np.uint32).astype(np.uint64)
    mixed = (bits + np.uint64(seed * 2 + 1)) * np.uint64(0x9E3779B185EBCA87)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xC2B2AE3D27D4EB4F)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
