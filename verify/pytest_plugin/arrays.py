"""What a test hands over, numpy or torch, as words of a known number format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.formats import FORMATS, Format, decode, get_format, word_dtype


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor's bits: ``words`` of its shape, C-contiguous, unsigned."""

    words: NDArray[Any]
    format: Format

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.words.shape

    @property
    def title(self) -> str:
        """``bfloat16[2, 64]``."""
        return f"{self.format.name}[{', '.join(map(str, self.shape))}]"

    def values(self) -> NDArray[Any]:
        """The values, exact: float64, or integers."""
        if self.format.kind == "complex":
            raise ArgumentError("complex numbers have no order", where=self.title)
        return decode(self.words, self.format)


def as_array(given: Any, name: str) -> Array:
    """Take the bits of a numpy array, a torch tensor, or a plain number or list.

    Raises:
        ArgumentError: the dtype is not in ``verify.formats.FORMATS``.
    """
    if hasattr(given, "detach"):
        from verify.dumps.capture.tensor_words import dtype_name, words

        fmt = get_format(dtype_name(given, name))
        return Array(words(given).reshape(tuple(given.shape)), fmt)
    array = np.asarray(given)
    if array.dtype.name not in FORMATS:
        raise ArgumentError(
            "this is not an array of numbers that can be checked",
            where=name,
            found=f"{type(given).__name__} of dtype {array.dtype.name}",
            allowed=", ".join(FORMATS),
        )
    fmt = get_format(array.dtype.name)
    shape = array.shape
    return Array(np.ascontiguousarray(array).view(word_dtype(fmt)).reshape(shape), fmt)
