"""Scaled decode: what each code of a narrow format becomes in float16 under a scale.

``y = x * s`` needs more bits than float16 has, so it matters where the rounding is. Three
conventions are in use, and two right implementations of two conventions differ by one unit in the
last place in about a fifth of the elements: a kernel is held to the convention that it declares.

* ``fp32_multiply``: ``fp16(float(x) * float(s))``, rounded to float32 and again to float16.
* ``fp16_multiply``: ``fp16(x) * fp16(s)``; the scale itself is rounded first.
* ``single_rounding``: the exact product with the float32 scale, rounded once.

Every product here is exact in float64 before it is rounded: a code has at most 4 significant bits
and a float32 scale 24.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from verify.errors import ArgumentError
from verify.formats import Format, decode, encode, word_dtype
from verify.formats.table import FORMATS, check_words, float_format

Convention = Literal["fp32_multiply", "fp16_multiply", "single_rounding"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

State = Literal["exact", "rounded", "subnormal", "overflow", "nan"]
STATES: tuple[State, ...] = get_args(State)

# A product with magnitude in here is below the normal numbers of the target.
_MIN_NORMAL = FORMATS["float16"].min_normal


@dataclass(frozen=True, slots=True)
class ScaledDecode:
    """The table of one format, scale and convention; arrays are indexed by code.

    Args:
        format: name of the format of the codes.
        convention: where the rounding is.
        scale_given: the scale as the caller wrote it.
        scale: the float32 scale, which ``products`` and "exact" refer to.
        values: float64 ``[codes]``, the codes' own values.
        products: float64 ``[codes]``, value times scale, exactly.
        words: uint16 ``[codes]``, the float16 results; NaN is 0x7E00 whatever the code's sign.
        results: float64 ``[codes]``, the values of ``words``.
        states: one of :data:`STATES` a code. ``nan``: the result is NaN. ``overflow``: a finite
            code became infinite. ``subnormal``: the result is below the smallest normal float16
            and the code is not zero; ``is_exact`` and ``is_flushed`` tell how it got there.
            ``rounded`` or ``exact`` otherwise.
        is_exact: bool ``[codes]``, the result equals the product.
        is_flushed: bool ``[codes]``, a code that is not zero became zero.
    """

    format: str
    convention: Convention
    scale_given: float
    scale: float
    values: NDArray[np.float64]
    products: NDArray[np.float64]
    words: NDArray[np.uint16]
    results: NDArray[np.float64]
    states: NDArray[np.str_]
    is_exact: NDArray[np.bool_]
    is_flushed: NDArray[np.bool_]

    @property
    def counts(self) -> dict[State, int]:
        """Codes in each state, states in the order of :data:`STATES`."""
        found = Counter(self.states.tolist())
        return {state: found[state] for state in STATES}

    @property
    def all_exact(self) -> bool:
        """True where no code that is a number loses anything."""
        return bool(self.is_exact[~np.isnan(self.values)].all())

    @property
    def scale_bits(self) -> int:
        """Significant bits of the float32 scale: at most 7 cost an E4M3 code nothing in range."""
        mantissa = int(math.ldexp(math.frexp(self.scale)[0], 24))
        return 24 - ((mantissa & -mantissa).bit_length() - 1)


def decode_table(
    fmt: str | Format, scale: float = 1.0, convention: Convention = "fp32_multiply"
) -> ScaledDecode:
    """The float16 result of every code of ``fmt`` under ``scale``.

    Args:
        fmt: a floating-point format of at most 8 bits.
        scale: positive and finite; rounded to float32 first, as a kernel argument is.
        convention: one of :data:`CONVENTIONS`.

    Raises:
        ArgumentError: another format, scale or convention.
    """
    fmt = _narrow_format(fmt)
    if convention not in CONVENTIONS:
        raise ArgumentError(
            "unknown rounding convention",
            where="convention",
            found=repr(convention),
            allowed=", ".join(CONVENTIONS),
        )
    scale32 = float32_scale(scale)
    values = decode(np.arange(1 << fmt.bits, dtype=word_dtype(fmt)), fmt)
    with np.errstate(invalid="ignore"):  # fp16_multiply can meet 0 * inf
        words = _rounded_products(values, scale32, convention)
    words[np.isnan(decode(words, "float16"))] = 0x7E00
    return _classified(fmt.name, convention, float(scale), scale32, values, words)


def decode_scaled(
    words: NDArray[Any],
    fmt: str | Format,
    scale: float = 1.0,
    convention: Convention = "fp32_multiply",
) -> NDArray[np.uint16]:
    """float16 words of a tensor of codes, any shape; arguments and errors as
    :func:`decode_table`."""
    fmt = _narrow_format(fmt)
    check_words(words, fmt)
    result: NDArray[np.uint16] = decode_table(fmt, scale, convention).words[words]
    return result


def float32_scale(scale: float) -> float:
    """The scale rounded to float32.

    Raises:
        ArgumentError: not a positive finite number, or not one after rounding.
    """
    number = float(scale)
    rounded = float(decode(encode(np.array(number), "float32"), "float32"))
    if not (0.0 < number < math.inf and 0.0 < rounded < math.inf):
        raise ArgumentError(
            "not a usable scale",
            where="scale",
            found=repr(number),
            allowed="a positive finite float32 number, 1.4e-45 to 3.4e38",
        )
    return rounded


def _narrow_format(fmt: str | Format) -> Format:
    fmt = float_format(fmt)
    if fmt.bits > 8:
        raise ArgumentError(
            "scaled decode is for formats of at most 8 bits",
            where="format",
            found=fmt.name,
            allowed=", ".join(n for n, f in FORMATS.items() if f.kind == "float" and f.bits <= 8),
        )
    return fmt


def _rounded_products(
    values: NDArray[np.float64], scale: float, convention: Convention
) -> NDArray[np.uint16]:
    if convention == "fp16_multiply":
        return encode(_through(values, "float16") * _through(np.array(scale), "float16"), "float16")
    product = values * scale
    if convention == "fp32_multiply":
        product = _through(product, "float32")
    return encode(product, "float16")


def _through(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    return np.asarray(decode(encode(values, name), name))


def _classified(
    name: str,
    convention: Convention,
    given: float,
    scale: float,
    values: NDArray[np.float64],
    words: NDArray[np.uint16],
) -> ScaledDecode:
    products = values * scale
    results = decode(words, "float16")
    is_exact = results == products
    below = (np.abs(results) < _MIN_NORMAL) & (products != 0)
    states = np.select(
        [np.isnan(results), np.isinf(results) & np.isfinite(values), below, ~is_exact],
        ["nan", "overflow", "subnormal", "rounded"],
        "exact",
    )
    is_flushed = (results == 0) & (products != 0)
    return ScaledDecode(
        format=name,
        convention=convention,
        scale_given=given,
        scale=scale,
        values=values,
        products=products,
        words=words,
        results=results,
        states=states,
        is_exact=is_exact,
        is_flushed=is_flushed,
    )
