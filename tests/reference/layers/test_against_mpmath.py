"""The FP64 references against the formulas in 160 bits, written out once more."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from verify.reference.layers.activations import activation, gated
from verify.reference.layers.linear import linear
from verify.reference.layers.norms import layer_norm, rms_norm
from verify.reference.layers.rope import inverse_frequencies, rope, rope_tables
from verify.reference.layers.softmax import softmax

BITS = 160
# A few dozen FP64 operations of 2^-53 each; sums of 48 terms in any order.
FP64_RELATIVE = 1e-14


@pytest.fixture(autouse=True)
def _precision():
    with mpmath.workprec(BITS):
        yield


def exact(values):
    """float64 bits as mpf, element by element."""
    return [mpf(float(value)) for value in np.ravel(values)]


def assert_close(found, expected, scale=1.0):
    worst = max(
        abs(mpf(float(f)) - e) / max(abs(e), mpf(scale) * mpf(10) ** -300)
        for f, e in zip(np.ravel(found), expected, strict=True)
    )
    assert worst < FP64_RELATIVE


def make_rows(seed, shape, scale=1.0):
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("unit_offset", [False, True])
def test_rms_norm(scale, unit_offset):
    x, weight = make_rows(1, (2, 48), scale), make_rows(2, 48)
    found = rms_norm(x, weight, eps=1e-6, unit_offset=unit_offset)
    for row, result in zip(x, found, strict=True):
        values = exact(row)
        root = mpmath.sqrt(sum(v * v for v in values) / len(values) + mpf(1e-6))
        factors = [w + unit_offset for w in exact(weight)]
        assert_close(result, [v / root * w for v, w in zip(values, factors, strict=True)])


@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_layer_norm(offset):
    x, weight = make_rows(3, (2, 48)) + offset, make_rows(4, 48)
    for row, result in zip(x, layer_norm(x, weight, eps=1e-5), strict=True):
        values = exact(row)
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / len(values)
        root = mpmath.sqrt(variance + mpf(1e-5))
        expected = [(v - mean) / root * w for v, w in zip(values, exact(weight), strict=True)]
        # x - mean cancels: 2^-53 |x| is relative to x and not to the difference.
        off = max(abs(mpf(float(f)) - e) for f, e in zip(result, expected, strict=True))
        assert off < FP64_RELATIVE * (1 + offset)


FORMULAS = {
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x / 2 * mpmath.erfc(-x / mpmath.sqrt(2)),
    "gelu-tanh": lambda x: (
        x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpf(0.044715) * x**3)))
    ),
}
# 1 + tanh z is about exp(2 z): at z = -300 it needs 870 bits before the 1 to survive.
CANCELLATION_BITS = 1200


@pytest.mark.parametrize("function", sorted(FORMULAS))
def test_activations_from_deep_negative_to_large(function):
    x = np.concatenate([np.linspace(-20, 20, 161), [-1e-30, 1e-30, -0.0, 80.0]])
    found = activation(x, function=function)
    mpmath.mp.prec = CANCELLATION_BITS
    # At -20 the exponential of 600 carries the rounding of its argument: a few times 600 * 2^-53.
    worst = max(
        abs(mpf(float(f)) - FORMULAS[function](v)) / abs(FORMULAS[function](v))
        for f, v in zip(found, exact(x), strict=True)
        if v != 0
    )
    assert worst < 5e-13


def test_gated_product():
    gate, up = make_rows(5, 64, 3.0), make_rows(6, 64)
    expected = [FORMULAS["silu"](g) * u for g, u in zip(exact(gate), exact(up), strict=True)]
    assert_close(gated(gate, up), expected)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope(pairing):
    size, position, theta = 16, 12345, 10000.0
    x = make_rows(7, size)
    cos, sin = rope_tables([position], theta=theta, rotated=size, angle="exact")
    found = rope(x[None], cos.mid, sin.mid, pairing=pairing)[0]
    expected = [mpf(0)] * size
    for i in range(size // 2):
        a, b = (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)
        angle = position * mpf(theta) ** (mpf(-2 * i) / size)
        va, vb = exact(x[[a, b]])
        expected[a] = va * mpmath.cos(angle) - vb * mpmath.sin(angle)
        expected[b] = vb * mpmath.cos(angle) + va * mpmath.sin(angle)
    off = max(abs(mpf(float(f)) - e) for f, e in zip(found, expected, strict=True))
    # The angle itself is a float64: position * 2^-52 radians.
    assert off < 4 * position * 2.0**-52


def test_inverse_frequencies():
    expected = [mpf(500000) ** (mpf(-2 * i) / 128) for i in range(64)]
    assert_close(inverse_frequencies(128, 500000.0), expected)


@pytest.mark.parametrize("scale", [1.0, 0.125])
def test_softmax_with_masked_elements(scale):
    x = make_rows(8, 48, 5.0)
    x[[3, 17]] = -np.inf
    found = softmax(x, scale=scale)
    weights = [mpf(0) if np.isinf(v) else mpmath.exp(mpf(scale) * mpf(v)) for v in x]
    assert found[3] == found[17] == 0.0
    assert_close(found, [w / sum(weights) for w in weights])


def test_linear_with_bias():
    x, weight, bias = make_rows(9, (2, 48)), make_rows(10, (3, 48)), make_rows(11, 3)
    found = linear(x, weight, bias)
    for row, result in zip(x, found, strict=True):
        for w, b, f in zip(weight, bias, result, strict=True):
            products = [u * v for u, v in zip(exact(row), exact(w), strict=True)]
            size = sum(abs(p) for p in products) + abs(mpf(float(b)))
            assert abs(mpf(float(f)) - sum(products) - mpf(float(b))) < FP64_RELATIVE * size
