"""The replay against a second one written scalar by scalar, and its properties."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import AttentionInputs, Row, attend
from verify.reference.replay.arithmetic import (
    Arithmetic,
    Chain,
    prefix_rounded_twice,
    tensor_core_prefill,
    wave_decode,
)
from verify.reference.replay.attention import replay
from verify.reference.replay.chains import multiply
from verify.reference.replay.exponential import Exponential
from verify.reference.tensor_core.exact_step import Hypothesis, chain

H = 2.0**-11
F32 = np.float32


def problem(keys=48, rows=1, dim=16, seed=0, value_mean=0.0, size=2.0, **options):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, n, 1, dim, generator=generator) for n in (rows, keys, keys))
    options.setdefault("causal", False)
    return AttentionInputs((q * size).half(), k.half(), (v + value_mean).half(), **options)


def scalar_replay(inputs: AttentionInputs, products: int, bits: int, mass: str, join: str):
    """One row, tiles of 16, written from the definition: Python numbers and single float32
    operations, tensor-core steps in fixed-point integers."""
    q, k, v = (x[0, :, 0].double().numpy() for x in (inputs.q, inputs.k, inputs.v))
    unit = Hypothesis(products, bits)

    def dot(a, b, c=0.0):
        return np.uint32(chain(list(a), list(b), float(c), unit)).view(F32)

    def exp(x):
        t = F32(F32(x) * F32(1.4426950408889634))
        return F32(2.0 ** float(t))

    m, mass_sum, acc = F32(-np.inf), F32(0), [F32(0)] * v.shape[1]
    for low in range(0, len(k), 16):
        x = [F32(dot(q[0], key) * F32(inputs.softmax_scale)) for key in k[low : low + 16]]
        top = max(m, *x)
        p = [exp(score - top) for score in x]
        half = [np.float16(value) for value in p]
        alpha = exp(m - top)
        summed = [F32(value) for value in (half if mass == "rounded" else p)]
        while len(summed) > 1:
            middle = len(summed) // 2
            summed = [F32(a + b) for a, b in zip(summed[:middle], summed[middle:], strict=True)]
        mass_sum = F32(F32(mass_sum * alpha) + summed[0])
        for d in range(len(acc)):
            column, old = v[low : low + 16, d], F32(acc[d] * alpha)
            acc[d] = dot(half, column, old) if join == "chain" else F32(old + dot(half, column))
        m = top
    return np.array([np.float16(F32(a / mass_sum)) for a in acc], dtype=np.float64)


@pytest.mark.parametrize("mass", ["rounded", "unrounded"])
@pytest.mark.parametrize("join", ["chain", "blocks"])
@pytest.mark.parametrize(("architecture", "unit"), [("sm_70", (4, 23)), ("sm_90", (16, 25))])
def test_equals_the_scalar_replay_bit_for_bit(architecture, unit, join, mass):
    for seed in range(2):
        inputs = problem(seed=seed, value_mean=0.5)
        rule = tensor_core_prefill(architecture, tile=16, accumulate=join, mass=mass)
        expected = scalar_replay(inputs, *unit, mass, join)
        assert np.array_equal(replay(inputs, rule).output[0], expected)


def test_fma_chains_round_once_a_term():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((1, 40)).astype(F32)
    b = rng.standard_normal((40, 1)).astype(np.float16).astype(F32)
    total = Fraction(0)
    for x, y in zip(a[0], b[:, 0], strict=True):
        exact = total + Fraction(float(x)) * Fraction(float(y))
        total = Fraction(float(nearest_float32(exact)))
    assert float(multiply(a, b, None, Chain("fma"), "float16")[0, 0]) == float(total)


def nearest_float32(exact: Fraction) -> float:
    near = F32(float(exact))
    around = [near, np.nextafter(near, F32(np.inf)), np.nextafter(near, F32(-np.inf))]
    return min((float(x) for x in around), key=lambda x: abs(Fraction(x) - exact))


RULES = [
    tensor_core_prefill("sm_70"),
    tensor_core_prefill("sm_90", accumulate="chain", partition=512),
    tensor_core_prefill("sm_90", partition="prefix_tail", mass="unrounded"),
    tensor_core_prefill("sm_80", parts=2),
    tensor_core_prefill("sm_80", probability="bfloat16", output="bfloat16"),
    prefix_rounded_twice("sm_70", step=256),
    wave_decode(256),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_kernel_is_close_to_the_exact_answer(rule):
    """A wrong order or factor would show as an error of many roundings of P and of the output."""
    options = {"causal": True, "softcap": 20.0, "sinks": torch.tensor([1.5])}
    inputs = problem(keys=1000, dim=32, rows=4, **options)
    unit = 2.0**-8 if rule.output == "bfloat16" else H
    if rule.operands == "bfloat16":
        cast = [x.bfloat16() for x in (inputs.q, inputs.k, inputs.v)]
        inputs = AttentionInputs(*cast, **options)
    found, exact = replay(inputs, rule), attend(inputs)
    error = torch.from_numpy(found.output) - exact.output
    share = error.abs() / (unit * (exact.output.abs() + exact.weighted_square))
    assert float(share.max()) < 4.0  # sqrt(2) roundings of P and one of the output, 6 sigma


def test_high_and_low_parts_remove_the_rounding_of_p():
    inputs = problem(keys=2048, rows=4, dim=64)
    exact = attend(inputs).output.numpy()
    errors = [
        np.linalg.norm(replay(inputs, tensor_core_prefill("sm_90", parts=parts)).unrounded - exact)
        / np.linalg.norm(exact)
        for parts in (1, 2)
    ]
    assert errors[0] > 0.1 * H
    assert errors[1] < 0.02 * H  # what is left: truncation and ex2


def test_long_truncated_chains_drift_and_blocks_do_not():
    """Numerics of truncation: -(0.5 .. 0.85) n 2^-23 with n = 4096 steps, about -0.6 h."""
    inputs = problem(keys=16384, dim=16, rows=2, value_mean=1.0)
    exact = attend(inputs).output.numpy()
    drift = {
        join: float(np.mean(
            replay(inputs, tensor_core_prefill("sm_70", accumulate=join)).unrounded / exact - 1
        )) / H
        for join in ("chain", "blocks")
    }  # fmt: skip
    assert -0.85 < drift["chain"] < -0.4
    assert abs(drift["blocks"]) < 0.02


def test_mass_of_rounded_probabilities_cancels_coherent_rounding():
    """All scores but one equal, their p a quarter above a rounding midpoint."""
    keys = 1024
    p = 0.5 + 2.0**-13
    k = torch.full((1, keys, 1, 16), 0.0)
    k[0, 1:, 0, 0] = float(torch.tensor(math.log(p)).half())
    q, v = torch.zeros(1, 1, 1, 16), torch.ones(1, keys, 1, 16)
    q[..., 0] = 1.0
    inputs = AttentionInputs(q.half(), k.half(), v.half(), scale=1.0, causal=False)
    shifts = {
        mass: replay(inputs, tensor_core_prefill("sm_90", mass=mass)).unrounded[0, 0] - 1.0
        for mass in ("rounded", "unrounded")
    }
    assert abs(shifts["rounded"]) < 1e-6
    assert abs(shifts["unrounded"]) > 0.1 * H


def test_scales_of_the_cache_are_folded_where_declared():
    codes = torch.linspace(-3, 3, 160).reshape(1, 10, 1, 16).to(torch.float8_e4m3fn)
    q = torch.ones(1, 1, 1, 16).half()
    inputs = AttentionInputs(q, codes, codes, k_scale=0.0123, v_scale=3.14159)
    after, before = (
        replay(inputs, tensor_core_prefill("sm_90", scale_fold=fold)).unrounded[0]
        for fold in ("after", "before")
    )
    assert not np.array_equal(after, before)
    assert np.abs(after - before).max() < 4 * H * 3 * 3.2  # |v| <= 3 times v_scale
    plain = AttentionInputs(q, codes, codes, k_scale=0.5, v_scale=2.0)
    folds = [
        replay(plain, tensor_core_prefill("sm_90", scale_fold=fold)).output
        for fold in ("after", "before")
    ]
    assert np.array_equal(*folds)  # powers of two: the same bits


def test_parts_that_see_nothing_leave_the_state():
    inputs = problem(keys=256, rows=1, kv_lengths=(70,))
    inputs.k[:, 70:], inputs.v[:, 70:] = torch.nan, torch.nan
    whole = replay(inputs, tensor_core_prefill("sm_90", partition=64))
    assert np.isfinite(whole.output).all()
    nothing = problem(keys=64, rows=1, kv_lengths=(0,))
    assert not replay(nothing, tensor_core_prefill("sm_90")).output.any()


def test_rows_are_returned_in_the_order_asked_for():
    inputs = problem(keys=64, rows=3)
    everything = replay(inputs, tensor_core_prefill("sm_70"))
    some = replay(inputs, tensor_core_prefill("sm_70"), [Row(0, 2, 0), Row(0, 0, 0)])
    assert np.array_equal(some.output, everything.output[[2, 0]])


def test_the_exponential_is_a_parameter():
    inputs = problem(keys=512, rows=2)
    rule = tensor_core_prefill("sm_90")
    nearest = replay(inputs, rule).unrounded
    scattered = replay(inputs, rule, exponential=Exponential("scattered")).unrounded
    assert not np.array_equal(nearest, scattered)
    assert np.abs(nearest - scattered).max() < H


def test_what_cannot_be_replayed_is_refused():
    with pytest.raises(ArgumentError, match="not fully declared"):
        replay(problem(), tensor_core_prefill("sm_70", base="unknown"))
    wide = AttentionInputs(*(torch.full((1, 2, 1, 16), 0.1) for _ in range(3)))
    with pytest.raises(ArgumentError, match=r"not on its grid\n.*q"):
        replay(wide, tensor_core_prefill("sm_70"))


def test_an_undeclared_rule_is_another_result():
    """Order and rounding matter: replays under different declarations differ in their bits."""
    inputs = problem(keys=2048, rows=2, dim=32, value_mean=1.0)
    base = Arithmetic("base", Chain("tensor_core", "sm_70"), Chain("tensor_core", "sm_70"))
    results = [replay(inputs, base).unrounded.tobytes()]
    for changes in (
        {"tile": 128}, {"accumulate": "blocks"}, {"mass": "unrounded"}, {"partition": 1024},
        {"score_chain": Chain("tensor_core", "sm_90")}, {"parts": 2},
    ):  # fmt: skip
        fields = {name: getattr(base, name) for name in base.__slots__} | changes
        results.append(replay(inputs, Arithmetic(**fields)).unrounded.tobytes())
    assert len(set(results)) == len(results)
