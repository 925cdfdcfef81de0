"""What a difference is: every kind is recognised in every format, and rounding never is."""

import numpy as np
import pytest

from verify.forensics.describe import describe
from verify.forensics.pair import Pair
from verify.formats import decode, encode, get_format

FORMATS = ["bfloat16", "float16", "float32"]
HEADS, DIM, ROWS = 4, 16, 24
AXES, SHAPE = "b t h d", (1, ROWS, HEADS, DIM)


def rounded(values, fmt):
    return decode(encode(values, fmt), fmt)


def draw(seed=0, rows=ROWS, width=HEADS * DIM):
    return np.random.default_rng(seed).standard_normal((rows, width))


def pair(a, b, fmt, axes=AXES, shape=SHAPE, **others):
    given = {name.replace("_", "."): value for name, value in others.items()}
    return Pair(rounded(a, fmt), rounded(b, fmt), get_format(fmt), axes, shape, given)


def kinds(*given, **others):
    return [fit.kind for fit in describe(pair(*given, **others))]


def best(*given, **others):
    fits = describe(pair(*given, **others))
    assert fits, "nothing was recognised"
    return fits[0]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("constant", [1.414, 0.5, 1.8667, -1.0, 0.06])
def test_one_ratio(fmt, constant):
    x = draw()
    fit = best(x, constant * x, fmt)
    assert fit.kind == "ratio" and fit.explained > 0.99 and fit.residual < 0.05
    value = float(fit.text.split("times ")[1].split()[0])
    assert value == pytest.approx(constant, rel=2 * 2.0 ** -get_format(fmt).mantissa_bits)
    assert ("power of two" in fit.text) == (constant == 0.5)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_ratio_in_some_heads_names_them(fmt):
    x = draw()
    y = x.reshape(ROWS, HEADS, DIM).copy()
    y[:, 2:] *= 1.414
    fit = best(x, y.reshape(x.shape), fmt)
    assert fit.kind == "ratio" and "heads from 2 on" in fit.text


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_number_for_each_row(fmt):
    x = draw()
    fit = best(x, x * np.linspace(1.2, 1.7, ROWS)[:, None], fmt)
    assert fit.kind == "row ratio" and "1.2 to 1.7" in fit.text
    plain = best(x, x * np.linspace(1.2, 1.7, ROWS)[:, None], fmt, "b t d", (1, *x.shape))
    assert plain.kind == "row ratio"


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_number_for_each_channel(fmt):
    x = draw()
    scale = np.linspace(0.5, 2.5, x.shape[1])
    fit = best(x, x * scale, fmt, "b t d", (1, *x.shape))
    assert fit.kind == "channel ratio" and "0.5" in fit.text and "to 2.5" in fit.text
    few = 8
    assert kinds(x[:few], x[:few] * scale, fmt, "b t d", (1, few, x.shape[1])) == []


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_same_vector_in_every_row(fmt):
    x = draw()
    assert best(x, x + draw(1, 1), fmt).kind == "vector"


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_zero_point_is_proportional_to_row_sums(fmt):
    x, given = draw(), draw(3, width=40)
    fit = best(x, x + 0.37 * given.sum(axis=1, keepdims=True), fmt, mlp_in=given)
    assert fit.kind == "row sum" and "0.37" in fit.text and "mlp.in" in fit.text
    assert best(x, x + 0.37 * given.sum(axis=1, keepdims=True), fmt).kind == "row constant"


@pytest.mark.parametrize("fmt", FORMATS)
def test_another_tensor_added(fmt):
    x, other = draw(), draw(5)
    fit = best(x, x + other, fmt, residual=other)
    assert fit.kind == "multiple" and fit.text == "B is A plus 1 times residual"
    missing = best(x + other, x, fmt, residual=other)
    assert missing.kind == "multiple" and "-1 times" in missing.text


ORDERS = [
    (lambda y: np.roll(y, 1, axis=1), "heads rotated by 1"),
    (lambda y: y.transpose(0, 2, 1), "heads and channels exchanged"),
    (lambda y: y.reshape(ROWS, HEADS, 2, DIM // 2).transpose(0, 1, 3, 2), "interleaved"),
    (lambda y: np.roll(y, DIM // 2, axis=2), "halves of each head exchanged"),
    (lambda y: y[:, ::-1, ::-1], "reversed"),
]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("change", "text"), ORDERS)
def test_another_order_of_the_same_values(fmt, change, text):
    x = draw()
    fit = best(x, change(x.reshape(ROWS, HEADS, DIM)).reshape(x.shape), fmt)
    assert fit.kind == "permutation" and text in fit.text and fit.residual == 0.0


def test_an_order_without_a_name_is_an_order_all_the_same():
    x = draw()
    fit = best(x, x[:, np.random.default_rng(9).permutation(x.shape[1])], "bfloat16")
    assert fit.kind == "permutation" and fit.text.endswith("another order")


@pytest.mark.parametrize("fmt", FORMATS)
def test_heads_that_read_other_heads(fmt):
    x = draw().reshape(ROWS, HEADS, DIM)
    y = x[:, [0, 0, 1, 3]]  # tiled for repeated
    fit = best(x.reshape(ROWS, -1), y.reshape(ROWS, -1), fmt)
    assert fit.kind == "other heads" and "head 1 holds 0, 2 holds 1" in fit.text


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_stale_row(fmt):
    x = draw()
    y = x.copy()
    y[5:9] = x[4:8]
    fit = best(x, y, fmt)
    assert fit.kind == "other rows" and "A's row 1 before it" in fit.text


@pytest.mark.parametrize(("top", "name"), [(448.0, "float8_e4m3fn"), (240.0, "float8_e4m3fnuz")])
def test_saturation_names_its_format(top, name):
    x = 300.0 * draw()
    fit = best(x, np.clip(x, -top, top), "bfloat16")
    # 240 and 448 are bfloat16 numbers, so that clipping is exact
    assert fit.kind == "saturation" and name in fit.text and "nothing else changed" in fit.text


def test_saturation_leaves_what_else_changed():
    """The residual counts the elements that clipping does not explain."""
    x = 300.0 * draw()
    only = best(x, np.clip(x, -448.0, 448.0), "bfloat16")
    more = np.clip(x, -448.0, 448.0)
    more[:, :32] = np.where(np.abs(x[:, :32]) > 448.0, more[:, :32], 0.7 * x[:, :32])
    mixed = best(x, more, "bfloat16")
    assert only.residual == 0.0 and only.explained == 1.0
    assert mixed.kind == "saturation" and "nothing else" not in mixed.text
    assert mixed.residual > 0.1 and mixed.explained < 0.5


def test_flush_to_zero():
    x = draw() * 2.0**-14
    y = np.where(np.abs(x) < 2.0**-14, 0.0, x)
    assert best(x, y, "float16").kind == "flush to zero"


def test_rows_of_zeros():
    x = draw()
    y = x.copy()
    y[1::2] = 0.0
    fit = best(x, y, "float32")
    assert fit.kind == "zero rows" and "12 rows" in fit.text


@pytest.mark.parametrize("fmt", ["bfloat16", "float16"])
def test_truncation(fmt):
    x = draw(rows=64)
    near = rounded(x, fmt)
    away = np.abs(near) > np.abs(x)
    step = 2.0 ** (np.floor(np.log2(np.abs(near))) - get_format(fmt).mantissa_bits)
    short = np.where(away, near - np.sign(near) * step, near)
    fit = best(near, short, fmt, "", ())
    assert fit.kind == "truncation" and fit.text.startswith("B is")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("seed", range(40))
def test_rounding_fits_nothing(fmt, seed):
    """Two sums of the same products in other orders, stored: no statement may fit that."""
    rng = np.random.default_rng(seed)
    k = int(rng.choice([64, 256, 1024]))
    x = rng.standard_normal((ROWS, k)).astype(np.float32)
    w = rng.standard_normal((k, HEADS * DIM)).astype(np.float32)
    parts = np.stack([x[:, i::8] @ w[i::8] for i in range(8)])
    whole, split = (x @ w).astype(float), parts.sum(axis=0, dtype=np.float32).astype(float)
    assert kinds(whole, split, fmt, x=x.astype(float), other=rng.standard_normal(whole.shape)) == []


@pytest.mark.parametrize("seed", range(20))
def test_an_unrelated_change_fits_nothing(seed):
    x, y = draw(seed), draw(seed + 100)
    assert kinds(x, x + 0.1 * y, "bfloat16", input=draw(seed + 200)) == []
    assert kinds(x, y, "float32", input=draw(seed + 200)) == []


@pytest.mark.parametrize("seed", [42, 47, *range(100, 120)])
def test_a_prediction_that_leaves_the_difference_is_not_made(seed):
    """One row, off by a few roundings of large values: additions have room there, and say nothing."""
    rng = np.random.default_rng(seed)
    x = 20.0 * rng.standard_normal((1, 64))
    y = x * (1.0 + rng.choice([-1.0, 1.0], x.shape) * 2.0**-6.5)
    other = rng.standard_normal(x.shape)
    given = pair(x, y, "bfloat16", "b t d", (1, 1, 64), other=other)
    assert given.changed.sum() >= 32  # enough that a fit is tried
    assert describe(given) == []


def test_few_elements_fit_nothing():
    x = draw(rows=1, width=8)
    assert kinds(x, 1.414 * x, "float32", "", ()) == []


def test_a_ratio_that_does_not_hold_everywhere_is_not_claimed():
    x = draw()
    y = 1.414 * x
    y[:, ::8] = x[:, ::8] * 1.2
    assert kinds(x, y, "float32", "", ()) == ["channel ratio"]
    y[:, ::8] = x[:, ::8] + draw(7)[:, ::8]
    assert kinds(x, y, "float32", "", ()) == []


def test_not_finite_values_are_no_obstacle():
    x = draw()
    y = 1.414 * x
    y[3, 5] = np.nan
    assert best(x, y, "float32").kind == "ratio"
    assert describe(pair(x, np.full_like(x, np.nan), "float32")) == []
