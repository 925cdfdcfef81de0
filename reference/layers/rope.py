"""Rotary position embedding in FP64, both pairings, with the roundings of each convention.

Element pair i of a head is turned by the angle ``position * theta^(-2i / rotated)``. The pair is
(i, i + rotated/2) for ``half`` (Hugging Face, GPT-NeoX) and (2i, 2i + 1) for ``interleaved``
(GPT-J, the original paper, arXiv 2104.09864).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from verify.errors import ArgumentError
from verify.reference.layers.arithmetic import FP32_UNIT, Arithmetic
from verify.reference.layers.checks import (
    Array,
    as_float64,
    check_axis,
    check_choice,
    check_count,
    check_number,
)
from verify.reference.layers.enclosure import Enclosure, Noise
from verify.reference.layers.grid import round_to

Pairing = Literal["half", "interleaved"]
PAIRINGS = ("half", "interleaved")
RopeCast = Literal["after-sum", "products"]
ROPE_CASTS = ("after-sum", "products")
Angle = Literal["exact", "float32", "recurrence"]
ANGLES = ("exact", "float32", "recurrence")


def inverse_frequencies(rotated: int, theta: float) -> Array:
    """``theta^(-2i / rotated)`` for i in 0 .. rotated/2 - 1, in FP64.

    Raises:
        ArgumentError: an odd or non-positive size, or a theta that is not above 1.
    """
    check_count("rotated", rotated, least=2)
    if rotated % 2:
        raise ArgumentError(
            "rotary embedding turns pairs", where="rotated", found=rotated, allowed="even sizes"
        )
    check_number("theta", theta, least=1.0, strict=True)
    return float(theta) ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated)


def rope_tables(
    positions: Any,
    *,
    inv_freq: Any = None,
    theta: float | None = None,
    rotated: int | None = None,
    angle: Angle = "float32",
    attention_factor: float = 1.0,
    arithmetic: Arithmetic | None = None,
) -> tuple[Enclosure, Enclosure]:
    """Cosine and sine of every angle: two enclosures ``[..., rotated / 2]``.

    Args:
        positions: [...], integers or real numbers (a kernel that rounds positions is caught by
            passing the true ones).
        inv_freq: [rotated / 2], radians per position, the very values that the kernel used, with
            any scaling for long context in them; or ``theta`` and ``rotated`` instead.
        angle: ``float32`` rounds the product position * inv_freq to FP32 first, as nearly every
            implementation does; at position p that moves the angle by up to 2^-24 p inv_freq.
            ``recurrence`` (ggml, ops.cpp, ggml_rope_cache_init; with theta) multiplies the angle of
            one pair by theta^(-2 / rotated) for the next, in FP32 all through.
        attention_factor: multiplies both tables (YaRN).

    Raises:
        ArgumentError: neither or both of inv_freq and theta, or values that are not finite.
    """
    arithmetic = arithmetic or Arithmetic()
    check_choice("angle", angle, ANGLES)
    factor = check_number("attention_factor", attention_factor, least=0.0, strict=True)
    if (inv_freq is None) == (theta is None):
        raise ArgumentError(
            "the angles need one source",
            where="inv_freq, theta",
            found="both" if theta is not None else "neither",
            allowed="inv_freq=[rotated / 2], or theta=... with rotated=...",
        )
    places = as_float64(positions, "positions")[..., None]
    if angle == "recurrence":
        angles, moved = _recurrence(places, theta, rotated or 0)
        return tuple(  # type: ignore[return-value]
            _around(f(angles), moved).widened(arithmetic.function_error).scaled(factor)
            for f in (np.cos, np.sin)
        )
    if theta is None:
        frequencies, uncertain = as_float64(inv_freq, "inv_freq"), np.zeros(())
    else:
        frequencies = inverse_frequencies(rotated or 0, theta)
        # FP32: the exponent rounds (times ln theta), the power errs, its reciprocal rounds.
        exponent = -np.log(frequencies)
        uncertain = frequencies * (arithmetic.function_error + FP32_UNIT * (2 + 2 * exponent))
    angles, moved = places * frequencies, np.abs(places) * uncertain
    if angle == "float32":
        if theta is not None:
            moved = moved + FP32_UNIT * np.abs(angles)
        angles = round_to(angles, "float32")
    else:
        moved = np.zeros(())  # computed in FP64, where the last bits do not show
    return tuple(  # type: ignore[return-value]
        _around(f(angles), moved).widened(arithmetic.function_error).scaled(factor)
        for f in (np.cos, np.sin)
    )


def _recurrence(places: Array, theta: float | None, rotated: int) -> tuple[Array, Array]:
    """Angles [..., rotated / 2] of the recurrence, and how far each may be off: the power is taken
    to be within one ULP of FP32, which every pair multiplies in once more."""
    if theta is None:
        raise ArgumentError(
            "a recurrence of angles needs theta", where="angle", found="recurrence",
            allowed="theta=... with rotated=...",
        )  # fmt: skip
    inverse_frequencies(rotated, theta)  # refuses what has no angles
    ratio = np.float32(float(theta) ** (-2.0 / rotated))
    angles = [places[..., 0].astype(np.float32)]
    for _ in range(rotated // 2 - 1):
        angles.append(angles[-1] * ratio)
    found = np.stack(angles, axis=-1).astype(np.float64)
    return found, np.abs(found) * (2 * FP32_UNIT * np.arange(rotated // 2))


def rope(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    pairing: Pairing = "half",
    cast: RopeCast = "after-sum",
    store: str = "float64",
) -> Array:
    """Turn the first ``2 * cos.shape[-1]`` elements of each head; the rest passes unchanged.

    Args:
        x: [..., head_dim], the rounded queries or keys that the kernel read.
        cos, sin: [..., rotated / 2], broadcastable against the leading axes of ``x`` (insert an
            axis of size 1 for heads); the table that the kernel read.
        pairing: ``half`` or ``interleaved`` (see the module text).
        cast: rounded once, ``after-sum``; or each of the two ``products`` to ``store`` first.
        store: format of the output; ``float64`` applies no rounding.

    Returns:
        float64, the shape of ``x``.

    Raises:
        ArgumentError: shapes that do not fit, an unknown pairing or cast.
    """
    tables = (Enclosure.exactly(as_float64(t, n)) for t, n in ((cos, "cos"), (sin, "sin")))
    turned = rope_enclosure(x, *tables, pairing=pairing, cast=cast, store=store)
    return round_to(turned.mid, store)


def rope_enclosure(
    x: Any,
    cos: Enclosure,
    sin: Enclosure,
    *,
    pairing: Pairing = "half",
    cast: RopeCast = "after-sum",
    store: str,
) -> Enclosure:
    """What a kernel of this convention can hold just before its last rounding: shape of ``x``."""
    check_choice("pairing", pairing, PAIRINGS)
    check_choice("cast", cast, ROPE_CASTS)
    values = as_float64(x, "x")
    size, half = check_axis("x", values), check_axis("cos", cos.mid)
    if 2 * half > size or sin.mid.shape != cos.mid.shape:
        raise ArgumentError(
            "shapes do not fit together",
            where="x, cos, sin",
            found=f"shapes {values.shape}, {cos.mid.shape}, {sin.mid.shape}",
            allowed="cos and sin alike, their last axis at most half of x's",
        )
    first, second = _pair_slices(half, pairing)
    a, b = values[..., first], values[..., second]
    _check_broadcast(a, cos.mid)

    def product(table: Enclosure, factor: Array) -> Enclosure:
        term = table.scaled(factor).computed(FP32_UNIT)
        return term.stored(store) if cast == "products" else term

    turned_a = product(cos, a).plus(product(sin, -b)).computed(FP32_UNIT)
    turned_b = product(cos, b).plus(product(sin, a)).computed(FP32_UNIT)
    return _assemble(values, turned_a, turned_b, first, second)


def _pair_slices(half: int, pairing: str) -> tuple[slice, slice]:
    if pairing == "half":
        return slice(0, half), slice(half, 2 * half)
    return slice(0, 2 * half, 2), slice(1, 2 * half, 2)


def _check_broadcast(a: Array, table: Array) -> None:
    try:
        fits = np.broadcast_shapes(a.shape, table.shape) == a.shape
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            "the table does not broadcast against the heads",
            where="cos, sin",
            found=f"table {table.shape} for pairs {a.shape}",
            allowed="each axis equal, or 1 in the table",
            hint="for x [batch, heads, tokens, dim] pass a table [batch, 1, tokens, dim / 2]",
        )


def _around(values: Array, moved: Array) -> Enclosure:
    """A table whose angles may be off by ``moved`` radians; |d cos| and |d sin| are at most 1."""
    off = np.broadcast_to(moved, values.shape)
    return Enclosure.around(values, off, off, Noise(drift=off))


def _assemble(
    x: Array, turned_a: Enclosure, turned_b: Enclosure, first: slice, second: slice
) -> Enclosure:
    """Put the turned pairs back in place, field by field; what is not turned stays exact."""

    def placed(base: Array, a: Array, b: Array) -> Array:
        whole = np.array(base)
        whole[..., first], whole[..., second] = a, b
        return whole

    still = np.zeros_like(x)
    noise = Noise(
        *(
            placed(still, getattr(turned_a.noise, name), getattr(turned_b.noise, name))
            for name in ("mean_abs", "rms", "common", "drift")
        )
    )
    mid, lo, hi, near_lo, near_hi = (
        placed(x, getattr(turned_a, name), getattr(turned_b, name))
        for name in ("mid", "lo", "hi", "near_lo", "near_hi")
    )
    return Enclosure(mid, lo, hi, near_lo, near_hi, noise)
