"""Running bounds against arithmetic that is carried out: never broken, and not absurdly wide."""

import numpy as np
import pytest

from verify.reference.layers.accumulate import FmaChain, repeats_roundings
from verify.reference.layers.grid import round_to
from verify.reference.layers.truncate import A100, H200, V100, TensorCore


def make_operands(kind, keys, fmt, seed=0, rows=6, columns=5):
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((rows, keys)), rng.standard_normal((columns, keys))
    if kind == "positive":
        x, w = np.abs(x), np.abs(w)
    if kind == "alternating":
        x, w = np.abs(x) * (-1.0) ** np.arange(keys), np.abs(w)
    return round_to(x, fmt), round_to(w, fmt)


def add_in_float32(x, w, order, block=None):
    """Products in float32 (exact for 16-bit operands), added in one order with float32 rounding."""
    total = np.zeros((x.shape[0], w.shape[0]), np.float32)
    for start in range(0, len(order), block or len(order)):
        part = np.zeros_like(total)
        for k in order[start : start + (block or len(order))]:
            product = np.outer(x[:, k], w[:, k])
            part = (part.astype(np.float64) + product).astype(np.float32)
        total = (total.astype(np.float64) + part).astype(np.float32)
    return total.astype(np.float64)


KINDS = ["gaussian", "positive", "alternating"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [None, 48])
def test_ascending_chain_stays_in_its_running_bound(kind, block):
    x, w = make_operands(kind, 300, "bfloat16")
    held = FmaChain(block=block, order="ascending").matmul(x, w)
    computed = add_in_float32(x, w, range(300), block)
    error = np.abs(computed - held.mid)
    assert (error <= held.radius).all()
    assert (error <= held.near_radius).all()
    assert error.max() > 0.0
    # What the pass over the partial sums buys: less than the bound that needs none.
    chain = FmaChain(block=block, order="ascending")
    assert held.radius.max() < chain.a_priori_factor(300) * (np.abs(x) @ np.abs(w).T).max()


@pytest.mark.parametrize("kind", KINDS)
def test_any_order_covers_permutations_and_lanes(kind):
    x, w = make_operands(kind, 256, "float16")
    held = FmaChain().matmul(x, w)
    rng = np.random.default_rng(1)
    orders = [range(256), range(255, -1, -1), rng.permutation(256)]
    orders += [np.arange(256).reshape(-1, lanes).T.ravel() for lanes in (2, 8, 16)]
    for order in orders:
        error = np.abs(add_in_float32(x, w, order) - held.mid)
        assert (error <= held.radius).all()
        assert (error <= held.near_radius).all()


def test_accumulating_in_bfloat16_leaves_the_float32_enclosure():
    x, w = make_operands("gaussian", 256, "bfloat16")
    total = np.zeros((6, 5))
    for k in range(256):
        total = round_to(total + np.outer(x[:, k], w[:, k]), "bfloat16")
    held = FmaChain().matmul(x, w)
    assert (np.abs(total - held.mid) > held.radius).mean() > 0.5
    declared = FmaChain(order="ascending", unit=2.0**-8).matmul(x, w)
    assert (np.abs(total - declared.mid) <= declared.radius).all()


@pytest.mark.parametrize("core", [V100, A100, H200, TensorCore(16, 25, chain=64)])
@pytest.mark.parametrize("kind", ["gaussian", "positive"])
def test_tensor_core_model_stays_in_its_running_bound(core, kind):
    x, w = make_operands(kind, 256, "float16")
    held = core.matmul(x, w)
    error = np.abs(truncating_sums(core, x, w) - held.mid)
    assert (error <= held.radius).all()
    assert (error <= held.near_radius).all()
    assert (held.radius <= core.a_priori_factor(256) * (np.abs(x) @ np.abs(w).T) * 1.01).all()


def truncating_sums(core, x, w):
    """Section by section of L products: align to the largest exponent, keep F bits, truncate."""
    total = np.zeros((x.shape[0], w.shape[0]))
    for begin in range(0, x.shape[1], core.chain or x.shape[1]):
        part = np.zeros_like(total)
        stop = min(begin + (core.chain or x.shape[1]), x.shape[1])
        for k in range(begin, stop, core.products):
            last = min(k + core.products, stop)
            terms = np.stack([np.outer(x[:, i], w[:, i]) for i in range(k, last)] + [part])
            exponents = np.stack(
                [
                    np.add.outer(exponent_of(x[:, i], -14), exponent_of(w[:, i], -14))
                    for i in range(k, last)
                ]
                + [exponent_of(part, -126)]
            )
            exponents = np.where(terms == 0.0, -1000, exponents).max(axis=0)
            quantum = np.ldexp(1.0, np.maximum(exponents, -900) - core.fraction_bits)
            exact = (np.trunc(terms / quantum) * quantum).sum(axis=0)
            kept = np.ldexp(1.0, exponent_of(exact, -126) - 23)
            part = np.trunc(exact / kept) * kept
        total = part if begin == 0 else (total + part).astype(np.float32).astype(np.float64)
    return total


def exponent_of(values, least):
    return np.maximum(np.frexp(values)[1] - 1, least)


def test_a_bias_may_come_first_or_last():
    x, w = make_operands("gaussian", 64, "float32")
    x, bias = x * 1e-6, np.full(5, 0.5)
    held = FmaChain().matmul(x, w, bias)
    with_first = np.hstack([np.ones((6, 1)), x]), np.hstack([bias[:, None], w])
    for order in (range(65), range(64, -1, -1)):
        error = np.abs(add_in_float32(*with_first, order) - held.mid)
        assert (error <= held.near_radius).all()


def test_a_priori_factor_counts_the_longest_path():
    assert FmaChain().a_priori_factor(1000) == pytest.approx(1000 * 2.0**-24, rel=1e-4)
    blocked = FmaChain(block=100, fused=False).a_priori_factor(1000)
    assert blocked == pytest.approx((100 + 9 + 1) * 2.0**-24, rel=1e-4)
    assert V100.a_priori_factor(20480) == pytest.approx(5 * 5120 * 2.0**-23, rel=0.01)
    assert H200.a_priori_factor(20480) == pytest.approx(5 * 1280 * 2.0**-23, rel=0.01)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (np.ones(64), True),
        (np.resize([0.3, -0.3, 0.7], 64), True),
        (1.0 + 1e-7 * np.arange(64), True),
        (np.linspace(1.0, 2.0, 64), False),
    ],
)
def test_sums_that_repeat_their_roundings_are_told_apart(terms, expected):
    assert bool(repeats_roundings(terms[None])[0, 0]) is expected
