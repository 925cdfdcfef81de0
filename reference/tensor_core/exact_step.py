"""The same arithmetic once more, one dot product at a time, and the rivals that it must beat.

Written from the published descriptions in fixed-point Python integers, with none of the code of
the fast model. A :class:`Hypothesis` states one way in which a tensor core might work; hardware
outputs decide. Finite operands only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from verify.reference.rounding import Mode, round_word

# Numbers are integers in units of 2^-GRID: below the last bit of every operand, float32 included.
_GRID = 300

_MIN_EXPONENT = {"float16": -14, "bfloat16": -126, "float32": -126}


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """How one step may work; the defaults are what the hardware does.

    Args:
        products: L.
        fraction_bits: F; None for exact alignment, nothing truncated before the final rounding.
        normalise_products: take floor(log2|a*b|) as the exponent of a product.
        late_accumulator: round the sum of the products to float32, then add c in a second step.
        final: the final rounding.
        floor_exponent: the least that the largest exponent of a step can be.
    """

    products: int
    fraction_bits: int | None
    normalise_products: bool = False
    late_accumulator: bool = False
    final: Mode = "toward_zero"
    floor_exponent: int = -133


def chain(
    a: Sequence[float],
    b: Sequence[float],
    c: float,
    hypothesis: Hypothesis,
    *,
    operands: str = "float16",
    output: str = "float32",
) -> int:
    """The word of c + a.b in ``output``, steps of L products over k ascending."""
    word = round_word(c, output)
    for start in range(0, len(a), hypothesis.products):
        stop = start + hypothesis.products
        total = _step(a[start:stop], b[start:stop], c, hypothesis, operands)
        mode: Mode = "nearest_even" if output == "float16" else hypothesis.final
        word = round_word(Fraction(total, 1 << _GRID), output, mode=mode)
        c = _value(word, output)
        if c == 0.0:
            word = 0  # a negative sum that rounds to zero gives +0 too
    return word


def _step(
    a: Sequence[float], b: Sequence[float], c: float, hypothesis: Hypothesis, operands: str
) -> int:
    """The truncated sum, in units of 2^-GRID."""
    terms = []
    for x, y in zip(a, b, strict=True):
        if x * y == 0.0:
            continue
        pinned = _exponent(x, operands) + _exponent(y, operands)
        normal = math.frexp(x * y)[1] - 1
        terms.append((_fixed(x * y), normal if hypothesis.normalise_products else pinned))
    accumulator = [(_fixed(c), _exponent(c, "float32"))] if c != 0.0 else []
    if hypothesis.late_accumulator:
        products = _truncated_sum(terms, hypothesis)
        word = round_word(Fraction(products, 1 << _GRID), "float32", mode=hypothesis.final)
        return _fixed(_value(word, "float32")) + sum(value for value, _ in accumulator)
    return _truncated_sum(terms + accumulator, hypothesis)


def _truncated_sum(terms: list[tuple[int, int]], hypothesis: Hypothesis) -> int:
    if not terms:
        return 0
    if hypothesis.fraction_bits is None:
        return sum(value for value, _ in terms)
    largest = max(hypothesis.floor_exponent, *(exponent for _, exponent in terms))
    drop = max(0, largest - hypothesis.fraction_bits + _GRID)
    return sum((abs(value) >> drop << drop) * (1 if value > 0 else -1) for value, _ in terms)


def _exponent(x: float, name: str) -> int:
    """max(floor(log2|x|), smallest normal exponent): subnormals are not normalised."""
    return max(math.frexp(x)[1] - 1, _MIN_EXPONENT[name])


def _fixed(x: float) -> int:
    return int(math.ldexp(x, _GRID))


def _value(word: int, name: str) -> float:
    """The value of a finite float16 or float32 word."""
    mantissa_bits, bias, sign = {"float32": (23, 127, 31), "float16": (10, 15, 15)}[name]
    magnitude = word & ((1 << sign) - 1)
    field, mantissa = divmod(magnitude, 1 << mantissa_bits)
    significand = mantissa + ((1 << mantissa_bits) if field else 0)
    value = math.ldexp(significand, max(field, 1) - bias - mantissa_bits)
    return -value if word >> sign else value
