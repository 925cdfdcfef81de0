"""Dot products and matrix products, step by step over k."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.formats import decode, word_dtype
from verify.reference.tensor_core.fused_step import fused_step
from verify.reference.tensor_core.software_mma import software_step
from verify.reference.tensor_core.terms import unpack
from verify.reference.tensor_core.units import Unit

# Products worked on at a time: the temporaries of one step then stay in the cache.
_BLOCK = 1 << 17


def dot_rows(
    a_words: NDArray[Any], b_words: NDArray[Any], c_words: NDArray[Any], unit: Unit
) -> NDArray[Any]:
    """``d[r] = c[r] + sum_k a[r,k]*b[r,k]``, one independent dot product a row.

    Args:
        a_words, b_words: ``[rows, k]``, words of ``unit.operands``. A k that is not a multiple of
            ``unit.products`` ends in a shorter step, which equals one filled up with zeros.
        c_words: ``[rows]``, words of ``unit.output``.

    Returns:
        ``[rows]``, words of ``unit.output``.

    Raises:
        ArgumentError: words of another width, or shapes that do not fit.
    """
    _check_words(a_words, unit.operands, "a_words", 2)
    _check_words(b_words, unit.operands, "b_words", 2)
    _check_words(c_words, unit.output, "c_words", 1)
    _check_shape("b_words", b_words.shape, a_words.shape)
    _check_shape("c_words", c_words.shape, a_words.shape[:1])
    rows = max(1, _BLOCK // unit.products)
    result = np.empty_like(c_words)
    for start in range(0, len(c_words), rows):
        block = slice(start, start + rows)
        result[block] = _accumulate(a_words[block].T, b_words[block].T, c_words[block], unit)
    return result


def matrix_product(
    a_words: NDArray[Any],
    b_words: NDArray[Any],
    c_words: NDArray[Any] | None,
    unit: Unit,
) -> NDArray[Any]:
    """``D = C + A @ B``, as a chain of instructions over k with C as the first accumulator.

    Args:
        a_words: ``[..., m, k]``, words of ``unit.operands``; leading axes are a batch of tiles.
        b_words: ``[..., k, n]``, words of ``unit.operands``.
        c_words: ``[..., m, n]``, words of ``unit.output``; None for zeros.

    Returns:
        ``[..., m, n]``, words of ``unit.output``.

    Raises:
        ArgumentError: words of another width, or shapes that do not fit.
    """
    _check_words(a_words, unit.operands, "a_words", None)
    _check_words(b_words, unit.operands, "b_words", None)
    *batch, m, k = a_words.shape
    n = b_words.shape[-1]
    _check_shape("b_words", b_words.shape, (*batch, k, n))
    if c_words is None:
        c_words = np.zeros((*batch, m, n), dtype=word_dtype(unit.output))
    _check_words(c_words, unit.output, "c_words", None)
    _check_shape("c_words", c_words.shape, (*batch, m, n))
    a, b = a_words.reshape(-1, m, k), b_words.reshape(-1, k, n)
    c = c_words.reshape(-1, m, n)
    result = np.empty_like(c)
    for block in _blocks(len(a), m, n * unit.products):
        tiles, rows = block
        # k leads: [k, tiles, m, 1] against [k, tiles, 1, n]
        a_block = np.moveaxis(a[block], -1, 0)[..., None]
        b_block = np.moveaxis(b[tiles], 1, 0)[:, :, None, :]
        result[tiles, rows] = _accumulate(a_block, b_block, c[block], unit)
    return result.reshape(c_words.shape)


def _blocks(tiles: int, rows: int, row_size: int) -> list[tuple[slice, slice]]:
    """Cut a batch of tiles into pieces of about ``_BLOCK`` products a step."""
    tile_step = max(1, _BLOCK // max(1, rows * row_size))
    row_step = rows if tile_step > 1 else max(1, _BLOCK // max(1, row_size))
    return [
        (slice(t, t + tile_step), slice(r, r + row_step))
        for t in range(0, tiles, tile_step)
        for r in range(0, rows, row_step)
    ]


def _accumulate(
    a_words: NDArray[Any], b_words: NDArray[Any], c_words: NDArray[Any], unit: Unit
) -> NDArray[Any]:
    """Run the steps; k is the first axis of ``a_words`` and ``b_words``."""
    if unit.software:
        a_values, b_values = (decode(words, unit.operands) for words in (a_words, b_words))
        for start in range(0, len(a_words), unit.products):
            step = slice(start, start + unit.products)
            c_words = software_step(a_values[step], b_values[step], c_words)
        return c_words
    a, b = unpack(a_words, unit.operands), unpack(b_words, unit.operands)
    for start in range(0, len(a_words), unit.products):
        step = slice(start, start + unit.products)
        c_words = fused_step(a[step], b[step], c_words, unit)
    return c_words


def _check_words(words: NDArray[Any], name: str, where: str, axes: int | None) -> None:
    if not isinstance(words, np.ndarray) or words.dtype != word_dtype(name):
        raise ArgumentError(
            f"expected the raw words of {name} numbers",
            where=where,
            found=getattr(words, "dtype", type(words).__name__),
            allowed=word_dtype(name),
        )
    if (words.ndim < 2) if axes is None else (words.ndim != axes):
        raise ArgumentError(
            "wrong number of axes", where=where, found=words.shape, allowed=axes or "2 or more"
        )


def _check_shape(where: str, found: tuple[int, ...], allowed: tuple[int, ...]) -> None:
    if found != allowed:
        raise ArgumentError("shapes do not fit", where=where, found=found, allowed=allowed)
