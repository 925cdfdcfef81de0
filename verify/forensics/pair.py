"""What a detector looks at: the same rows of one tap in both runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.forensics.support import free_axes
from verify.formats import Format

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROUNDINGS = 2.5
"""Unit roundoffs by which an explained element may be off: A's own rounding, B's, and half of one
for the constant, which is estimated from rounded values itself."""


@dataclass(frozen=True)
class Pair:
    """Rows of a tap.

    Args:
        a, b: [rows, row_length], float64, exact values of the stored elements.
        format: in which both were stored.
        axes, shape: of the tensor, as the record states them.
        others: recorded tensors of the same rows, by name: [rows, any length].
    """

    a: Values
    b: Values
    format: Format
    axes: str = ""
    shape: tuple[int, ...] = ()
    others: Mapping[str, Values] = field(default_factory=dict)

    @cached_property
    def unit(self) -> float:
        """Unit roundoff of the format."""
        return float(2.0 ** -(self.format.mantissa_bits + 1))

    @cached_property
    def finite(self) -> Mask:
        """Elements that are finite on both sides."""
        return np.asarray(np.isfinite(self.a) & np.isfinite(self.b))

    @cached_property
    def changed(self) -> Mask:
        """Elements that differ by more than a few roundings of either side."""
        return ~self.near(self.a) & ~(np.isnan(self.a) & np.isnan(self.b))

    def near(self, wanted: Values, more: Values | float = 0.0) -> Mask:
        """Elements of B that are ``wanted`` up to rounding.

        Args:
            wanted: prediction, of the shape of B.
            more: size of what was added up on the way, whose rounding counts as well.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.maximum(np.abs(wanted), np.abs(self.b)) + more
            room = ROUNDINGS * self.unit * size + self.format.min_subnormal
            return np.asarray((np.abs(self.b - wanted) <= room) | (self.b == wanted))

    @cached_property
    def grid(self) -> tuple[int, int]:
        """(heads, elements of a head) where the row has heads, else (1, row_length)."""
        named = free_axes(self.axes, self.shape) if self.axes else []
        sizes = dict(named)
        if "h" in sizes and prod(sizes.values()) == self.a.shape[1] and named[0][0] == "h":
            return sizes["h"], self.a.shape[1] // sizes["h"]
        return 1, self.a.shape[1]

    def by_head(self, values: NDArray[Any]) -> NDArray[Any]:
        """[rows, heads, elements of a head]."""
        heads, length = self.grid
        return values.reshape(len(values), heads, length)
