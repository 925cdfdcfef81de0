"""What a word is, read off its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats.table import Format, check_words, get_format


def is_nan(words: NDArray[Any], fmt: str | Format) -> NDArray[np.bool_]:
    """True where a word is NaN; a complex number is NaN where either part is.

    Args:
        words: raw elements of ``fmt``, any shape.

    Raises:
        ArgumentError: unknown format, or words of another width.
    """
    fmt = get_format(fmt)
    check_words(words, fmt)
    if fmt.kind == "complex":
        return np.asarray(is_nan(complex_parts(words), "float32").any(axis=-1))
    as_word = words.dtype.type
    if fmt.nan == "none":
        return np.zeros(words.shape, dtype=np.bool_)
    if fmt.nan == "negative_zero":
        return np.asarray(words == as_word(fmt.sign_bit))
    magnitude = words & as_word(fmt.magnitude_mask)
    if fmt.nan == "ieee":
        return np.asarray(magnitude > as_word(fmt.exponent_mask))
    return np.asarray(magnitude == as_word(fmt.magnitude_mask))


def complex_parts(words: NDArray[Any]) -> NDArray[np.uint32]:
    """complex64 words ``[...]`` as float32 words ``[..., 2]``: real part, imaginary part."""
    return np.ascontiguousarray(words).reshape(words.shape)[..., None].view(np.uint32)
