"""What a layer admits: every refusal names the argument, its value and what would have done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verify.errors import ArgumentError

Array = NDArray[np.float64]


def as_float64(values: Any, name: str) -> Array:
    """A tensor as float64, which holds every value of float32, bfloat16, float16 and the float8
    formats exactly; so the reference sees the very inputs that the kernel saw.

    Args:
        values: a numpy array, a torch tensor or nested lists of real numbers, any shape.

    Raises:
        ArgumentError: complex or non-numeric values, or an axis of size zero.
    """
    if hasattr(values, "detach"):  # a torch tensor, without importing torch
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values)
    if array.dtype.kind in "cOSUmM":
        raise ArgumentError(
            "a layer works on real numbers", where=name, found=array.dtype, allowed="real dtypes"
        )
    if 0 in array.shape:
        raise ArgumentError(
            "a tensor without elements has no result to check",
            where=name,
            found=f"shape {array.shape}",
            allowed="every axis at least 1",
        )
    return array.astype(np.float64, copy=False)


def as_ids(values: Any, name: str, *, below: int | None = None) -> NDArray[np.int64]:
    """Indices as int64, each in ``[0, below)``.

    Raises:
        ArgumentError: values of another kind, or one out of range (the first is named).
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise ArgumentError(
            "indices are integers", where=name, found=array.dtype, allowed="integer dtypes"
        )
    ids = array.astype(np.int64)
    outside = (ids < 0) | (ids >= (below if below is not None else np.iinfo(np.int64).max))
    if outside.any():
        at = tuple(int(axis[0]) for axis in np.nonzero(outside))
        raise ArgumentError(
            "an index is out of range",
            where=f"{name}{list(at)}",
            found=int(ids[at]),
            allowed=f"0 .. {below - 1}" if below is not None else ">= 0",
        )
    return ids


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a convention that does not exist, listing those that do."""
    if value not in allowed:
        raise ArgumentError(
            "unknown convention", where=name, found=repr(value), allowed=", ".join(allowed)
        )


def check_number(name: str, value: object, *, least: float, strict: bool = False) -> float:
    """A finite number not below ``least`` (above it if ``strict``)."""
    number = float(value) if isinstance(value, int | float | np.integer | np.floating) else math.nan
    if not math.isfinite(number) or number < least or (strict and number == least):
        raise ArgumentError(
            "a number outside what has a meaning",
            where=name,
            found=repr(value),
            allowed=f"finite and {'>' if strict else '>='} {least:g}",
        )
    return number


def check_finite(name: str, value: object) -> float:
    """A finite number of either sign."""
    return check_number(name, value, least=-float(np.finfo(np.float64).max))


def check_count(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """An integer in ``[least, most]``."""
    inside = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not inside or value < least or (most is not None and value > most):  # type: ignore[operator]
        raise ArgumentError(
            "a count outside what has a meaning",
            where=name,
            found=repr(value),
            allowed=f"an integer {f'>= {least}' if most is None else f'in {least} .. {most}'}",
        )
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_shape(name: str, array: ArrayLike, expected: tuple[int, ...], axes: str) -> None:
    """Refuse a shape that does not fit the other tensors."""
    found = np.shape(array)
    if found != expected:
        raise ArgumentError(
            "shapes do not fit together",
            where=name,
            found=f"shape {found}",
            allowed=f"{axes} = {expected}",
        )


def check_axis(name: str, array: ArrayLike, *, least: int = 1) -> int:
    """The size of the last axis of a tensor that must have one."""
    shape = np.shape(array)
    if not shape or shape[-1] < least:
        raise ArgumentError(
            "a tensor lacks the axis that the layer works along",
            where=name,
            found=f"shape {shape}",
            allowed=f"at least one axis, the last of size >= {least}",
        )
    return int(shape[-1])
