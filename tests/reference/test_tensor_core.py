"""The fast tensor-core model: discriminating vectors, an exact second model, chains, specials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.formats import decode, encode
from verify.reference.rounding import round_words, to_exact
from verify.reference.tensor_core import Unit, dot_rows, get_unit, matrix_product
from verify.reference.tensor_core.exact_step import Hypothesis, chain
from verify.reference.tensor_core.software_mma import add_once
from verify.reference.tensor_core.vectors import COLUMNS, VECTORS, as_words

UNITS = {
    "V": get_unit("sm_70"),
    "A": get_unit("sm_80", "m16n8k16"),
    "H": get_unit("sm_90"),
    "E": get_unit("sm_90", "m8n8k4"),
}


def rows_equal(words: Any, values: list[float]) -> bool:
    """Equal values with equal zeros; NaN is the one NaN that a tensor core makes."""
    expected = encode(np.array(values), "float32")
    expected[np.isnan(values)] = 0x7FFFFFFF
    return bool(np.array_equal(words, expected))


@pytest.mark.parametrize("column", list(UNITS))
def test_discriminating_vectors(column: str) -> None:
    results = [vector.results[COLUMNS.index(column)] for vector in VECTORS]
    assert rows_equal(dot_rows(*as_words(), UNITS[column]), results)


def test_the_exact_column_of_the_vectors() -> None:
    """The published column X, recomputed: it guards the vectors themselves."""
    for vector in VECTORS:
        result = vector.results[COLUMNS.index("X")]
        if not vector.name.startswith("T9"):
            exact = sum(
                (to_exact(a) * to_exact(b) for _, a, b in vector.products), to_exact(vector.c)
            )
            assert round_words([exact], "float32") == encode(np.array([result]), "float32")


@pytest.mark.parametrize("column", "VAH")
def test_order_inside_a_step_is_irrelevant(column: str) -> None:
    unit = UNITS[column]
    a, b, c = random_rows(np.random.default_rng(2), 500, unit.products, "float16", "float32")
    order = np.random.default_rng(3).permutation(unit.products)
    result = dot_rows(a, b, c, unit)
    assert np.array_equal(dot_rows(a[:, order], b[:, order], c, unit), result)


def random_rows(
    rng: np.random.Generator, rows: int, k: int, operands: str, output: str
) -> tuple[Any, Any, Any]:
    """Operands over the whole exponent range, subnormals included; c over most of its own."""
    low, high = {"float16": (-24, 15), "bfloat16": (-60, 60), "tiny bfloat16": (-80, -66)}[operands]
    operands = operands.removeprefix("tiny ")
    c_low, c_high = {"float32": (-149, 100), "float16": (-24, 10)}[output]

    def draw(shape: tuple[int, ...], lowest: int, highest: int, fmt: str) -> Any:
        exponents = rng.integers(lowest, highest, shape, endpoint=True)
        values = np.ldexp(rng.uniform(1, 2, shape) * rng.choice([-1.0, 1.0], shape), exponents)
        return encode(values, fmt, saturate=True)

    # Rows of one magnitude cancel and carry; rows of all magnitudes test the alignment.
    a = draw((rows, k), low, high, operands)
    a[: rows // 2] = draw((rows // 2, k), -2, 1, operands)
    b = draw((rows, k), low, high if output == "float32" else 0, operands)
    b[: rows // 2] = draw((rows // 2, k), -2, 1, operands)
    return a, b, draw((rows,), c_low, c_high, output)


CASES = [
    *((unit, "float16", "float32") for unit in ((4, 23), (8, 24), (16, 25), (8, 25))),
    *((unit, "float16", "float16") for unit in ((4, 23), (8, 24), (16, 25))),
    *((unit, "bfloat16", "float32") for unit in ((8, 24), (16, 25))),
]


@pytest.mark.parametrize(("shape", "operands", "output"), CASES)
def test_chains_equal_the_exact_model(shape: tuple[int, int], operands: Any, output: Any) -> None:
    """Two steps and a short third one, so the order of steps counts too."""
    unit = Unit(*shape, operands, output)
    k = 2 * unit.products + 3
    a, b, c = random_rows(np.random.default_rng(k), 400, k, operands, output)
    fast = dot_rows(a, b, c, unit)
    values = (
        decode(a, operands).tolist(),
        decode(b, operands).tolist(),
        decode(c, output).tolist(),
    )
    finite = np.isfinite(decode(fast, output))
    assert finite.mean() > 0.7
    hypothesis = Hypothesis(*shape)
    for row in np.flatnonzero(finite):
        x, y, z = (column[row] for column in values)
        assert chain(x, y, z, hypothesis, operands=operands, output=output) == fast[row]


def test_the_floor_under_tiny_bfloat16_products() -> None:
    """Products from 2^-160 to 2^-130 onto c = 0: there the floor decides the last bit of a few."""
    a, b, c = random_rows(np.random.default_rng(8), 40000, 16, "tiny bfloat16", "float32")
    a, b, c = a[20000:], b[20000:], np.zeros(20000, np.uint32)
    fast = dot_rows(a, b, c, get_unit("sm_90", operands="bfloat16"))
    for floor in (-132, -134):
        rival = Unit(16, 25, "bfloat16", floor_exponent=floor)
        assert np.count_nonzero(dot_rows(a, b, c, rival) != fast) > 10
    decided = np.flatnonzero(dot_rows(a, b, c, rival) != fast)  # where -134 gives another result
    for row in decided:
        x, y = decode(a[row], "bfloat16").tolist(), decode(b[row], "bfloat16").tolist()
        assert chain(x, y, 0.0, Hypothesis(16, 25), operands="bfloat16") == fast[row]


@pytest.mark.parametrize(("odd", "expected"), [(0, 1.0), (1, 1.0 + 2.0**-9)])
def test_float16_output_sends_a_tie_to_even(odd: int, expected: float) -> None:
    """1 or 1 + 2^-10, and half a last place from c."""
    a, b = np.zeros((2, 1, 16))
    a[0, 3], b[0, 3] = 1.0 + odd * 2.0**-10, 1.0
    c = encode(np.array([2.0**-11]), "float16")
    words = dot_rows(
        encode(a, "float16"), encode(b, "float16"), c, get_unit("sm_90", output="float16")
    )
    assert decode(words, "float16") == [expected]


@pytest.mark.parametrize("column", list(UNITS))
def test_nothing_but_negative_zeros_is_plus_zero(column: str) -> None:
    """Seen on an H200 for the native instructions and for the routine, whose first fused
    multiply-add starts from +0."""
    minus = np.full((1, 16), 0x8000, np.uint16)
    one = np.full((1, 16), 0x3C00, np.uint16)
    assert dot_rows(minus, one, np.array([1 << 31], np.uint32), UNITS[column]).tolist() == [0]


def test_a_negative_sum_that_rounds_to_zero_is_plus_zero() -> None:
    """Seen on an H200: float16 output, products far below half the smallest float16."""
    a = encode(np.full((1, 16), -(2.0**-14)), "float16")
    b = encode(np.full((1, 16), 2.0**-24), "float16")
    unit = get_unit("sm_90", output="float16")
    assert dot_rows(a, b, np.array([0x8000], np.uint16), unit).tolist() == [0]


def test_the_software_routine_rounds_every_step_once() -> None:
    """Against exact rational arithmetic, with exponents that span more than float64 holds."""
    unit = UNITS["E"]
    a, b, c = random_rows(np.random.default_rng(9), 600, 8, "float16", "float32")
    x, y, z = decode(a, "float16"), decode(b, "float16"), decode(c, "float32")
    words = c
    for start in (0, 4):
        total = [to_exact(p) * to_exact(q) for p, q in zip(x[:, start], y[:, start], strict=True)]
        for k in range(start + 1, start + 4):
            rounded = decode(round_words(total, "float32"), "float32")
            total = [
                to_exact(t) + to_exact(p) * to_exact(q)
                for t, p, q in zip(rounded, x[:, k], y[:, k], strict=True)
            ]
        rounded = decode(round_words(total, "float32"), "float32")
        exact = [to_exact(t) + to_exact(s) for t, s in zip(rounded, z, strict=True)]
        words = round_words(exact, "float32")
        z = decode(words, "float32")
    assert np.array_equal(dot_rows(a, b, c, unit), words)


def test_a_fused_addition_rounds_once() -> None:
    """1 + (half a last place) ± a term that float64 cannot hold beside it: rounding twice sees a
    tie there, and the wrong one of the two goes to even."""
    last = 2.0**-23
    x = np.array([1 + last / 2, 1 + last / 2, 1 + 1.5 * last, 1 + 1.5 * last, -1 - last / 2, 1.0])
    y = np.array([2.0**-60, -(2.0**-60), 2.0**-60, -(2.0**-60), 2.0**-60, np.inf])
    exact = [to_exact(p) + to_exact(q) for p, q in zip(x[:-1], y[:-1], strict=True)]
    expected = [*round_words(exact, "float32"), 0x7F800000]
    assert np.array_equal(add_once(x, y).view(np.uint32), expected)
    assert not np.array_equal((x + y).astype(np.float32).view(np.uint32), expected)


@pytest.mark.parametrize("column", list(UNITS))
def test_matrix_product_is_its_dot_products(column: str) -> None:
    unit = UNITS[column]
    rng = np.random.default_rng(4)
    a, _, c = random_rows(rng, 3 * 24, 40, "float16", "float32")
    b, _, _ = random_rows(rng, 3 * 40, 24, "float16", "float32")
    a, b = a.reshape(3, 24, 40), b.reshape(3, 40, 24)
    c = np.broadcast_to(c.reshape(3, 24, 1), (3, 24, 24)).copy()
    product = matrix_product(a, b, c, unit)
    rows = [
        dot_rows(np.repeat(a[t], 24, 0), np.tile(b[t].T, (24, 1)), c[t].ravel(), unit)
        for t in range(3)
    ]
    assert np.array_equal(product.reshape(3, -1), np.array(rows))
    # A chain of instructions: the result of one is the accumulator of the next.
    first = matrix_product(a[..., :16], b[..., :16, :], c, unit)
    assert np.array_equal(matrix_product(a[..., 16:], b[..., 16:, :], first, unit), product)


def test_large_products_are_cut_into_blocks() -> None:
    """Across block borders: a tile wider than one block, and many small tiles."""
    unit = UNITS["H"]
    rng = np.random.default_rng(6)
    a, b, _ = random_rows(rng, 300, 32, "float16", "float32")
    whole = matrix_product(a, b.T.copy(), None, unit)
    assert np.array_equal(whole[[0, 299]], matrix_product(a[[0, 299]], b.T.copy(), None, unit))
    tiles = matrix_product(
        np.tile(a[:16], (50, 1, 1)), np.tile(b.T[:, :16], (50, 1, 1)), None, unit
    )
    assert np.array_equal(tiles, np.broadcast_to(whole[:16, :16], (50, 16, 16)))


@pytest.mark.parametrize("output", ["float32", "float16"])
def test_specials_among_ordinary_elements(output: Any) -> None:
    unit = get_unit("sm_90", output=output)
    a = encode(np.ones((6, 32)), "float16")
    b = a.copy()
    c = encode(np.zeros(6), output)
    inf, nan = 0x7C00, 0x7E01
    a[1, 3] = nan
    a[2, 20] = inf
    a[3, 20], a[3, 21] = inf, inf | 0x8000
    a[4, 0], b[4, 0] = inf, 0
    c[5] = encode(np.array([-np.inf]), output)[0]
    expected = encode(np.array([32.0, 0, np.inf, 0, 0, -np.inf]), output)
    expected[[1, 3, 4]] = {"float32": 0x7FFFFFFF, "float16": 0x7FFF}[output]
    assert np.array_equal(dot_rows(a, b, c, unit), expected)


def test_finite_operands_never_overflow() -> None:
    """So an infinity out of an FP16 product with float32 output proves one going in."""
    a = np.full((2, 16), 0x7BFF, np.uint16)
    c = np.array([0x7F7FFFFF, 0xFF7FFFFF], np.uint32)
    assert np.array_equal(dot_rows(a, a, c, UNITS["H"]), c)


BAD_UNITS = [
    (("sm_60",), {}, "unknown architecture"),
    (("sm_90", "m16n8k32"), {}, "unknown instruction"),
    (("sm_70", "m16n8k16"), {}, "sm_70 has no m16n8k16"),
    (("sm_75", "wgmma"), {}, "sm_75 has no wgmma"),
    (("sm_70",), {"operands": "bfloat16"}, "no such bfloat16 product"),
    (("sm_90", "m8n8k4"), {"operands": "bfloat16"}, "no such bfloat16 product"),
    (("sm_90", "m8n8k4"), {"output": "float16"}, "is not known"),
    (("sm_90",), {"operands": "float8_e4m3fn"}, "unknown operands"),
]


@pytest.mark.parametrize(("args", "options", "message"), BAD_UNITS)
def test_combinations_that_do_not_exist(args: Any, options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        get_unit(*args, **options)


def test_wrong_operands() -> None:
    unit = UNITS["H"]
    a = np.zeros((4, 16), np.uint16)
    with pytest.raises(ArgumentError, match="raw words of float16"):
        dot_rows(a.view(np.float16), a, np.zeros(4, np.uint32), unit)
    with pytest.raises(ArgumentError, match="raw words of float32"):
        dot_rows(a, a, np.zeros(4), unit)
    with pytest.raises(ArgumentError, match="shapes do not fit"):
        matrix_product(a, a, None, unit)
    with pytest.raises(ArgumentError, match="wrong number of axes"):
        matrix_product(a[0], a, None, unit)
    with pytest.raises(ArgumentError, match="no tensor core works like this"):
        Unit(16, 22)
