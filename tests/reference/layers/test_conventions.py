"""Every convention against its own arithmetic, written in torch: the replay is bit for bit."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from verify.reference.layers.activations import activation_enclosure, gated
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to
from verify.reference.layers.linear import linear, round_tf32
from verify.reference.layers.lookup import embedding, residual_add
from verify.reference.layers.norms import rms_norm, rms_norm_enclosure
from verify.reference.layers.rope import rope

FORMATS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(params=sorted(FORMATS))
def store(request):
    return request.param


def make(shape, store, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(FORMATS[store])


def share_equal(found, expected):
    return float((found == expected.double().numpy()).mean())


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


# FP32 noise before a rounding moves one output in some thousand (measured below 3e-4); a wrong
# convention moves a quarter of them.
SAME = 0.999
OTHER = 0.9


def test_rms_norm_casts(store):
    x, weight = make((16, 512), store), make((512,), store, 1)
    normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    outputs = {
        "after-weight": (normed * weight.float()).to(x.dtype),
        "before-weight": weight * normed.to(x.dtype),
    }
    for cast, output in outputs.items():
        for declared in outputs:
            found = rms_norm(x, weight, eps=1e-6, cast=declared, store=store)
            equal = share_equal(found, output)
            assert equal > SAME if declared == cast else equal < OTHER


def test_weight_offset_and_reciprocal_may_be_stored(store):
    x, weight = make((16, 512), store), make((512,), store, 1)
    root = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    summed = (1.0 + weight).float()
    found = rms_norm_enclosure(
        x, weight, eps=1e-6, unit_offset=True, offset_sum="stored", store=store
    )
    assert share_equal(round_to(found.mid, store), (x.float() * root * summed).to(x.dtype)) > SAME
    held = rms_norm_enclosure(x, weight, eps=1e-6, reciprocal="stored", store=store)
    output = (x.float() * root.to(x.dtype).float() * weight.float()).to(x.dtype)
    assert share_equal(round_to(held.mid, store), output) > SAME


def test_gated_casts(store):
    gate, up = make((16, 512), store), make((16, 512), store, 1)
    fused = (functional.silu(gate.float()) * up.float()).to(gate.dtype)
    unfused = functional.silu(gate) * up
    for cast, same, other in (
        ("after-product", fused, unfused),
        ("before-product", unfused, fused),
    ):
        found = gated(gate, up, cast=cast, store=store)
        assert share_equal(found, same) > SAME
        assert share_equal(found, other) < OTHER


def test_rope_casts(store):
    x = make((4, 32, 64), store)
    angles = torch.arange(32)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    wide = [torch.cat([t, t], dim=-1) for t in (cos, sin)]
    products = x * wide[0] + rotate_half(x) * wide[1]
    fused = (x.float() * wide[0].float() + rotate_half(x.float()) * wide[1].float()).to(x.dtype)
    assert share_equal(rope(x, cos, sin, cast="products", store=store), products) == 1.0
    # In float32 a fused multiply-add would be right too, so not to the bit.
    assert share_equal(rope(x, cos, sin, store=store), fused) > SAME


def test_interleaved_pairing_is_half_pairing_of_permuted_elements(store):
    x = make((4, 8), store)
    angles = torch.arange(4)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    half = rope(x[:, order], angles.cos(), angles.sin())
    assert (rope(x, angles.cos(), angles.sin(), pairing="interleaved")[:, order] == half).all()


def test_rope_passes_what_is_not_rotated():
    x = np.arange(12.0).reshape(2, 6)
    turned = rope(x, np.zeros((2, 2)), np.ones((2, 2)))
    assert turned.tolist() == [[-2, -3, 0, 1, 4, 5], [-8, -9, 6, 7, 10, 11]]


def test_embedding_scale_rounded_to_bfloat16_is_34():
    table = np.ones((2, 3))
    exact = embedding([1], table, scale=33.941125, store="bfloat16")
    stored = embedding([1], table, scale=33.941125, scale_precision="stored", store="bfloat16")
    assert exact.tolist() == stored.tolist() == [[34.0] * 3]
    large = np.full((2, 3), 1.25)
    assert embedding([0], large, scale=33.65, store="bfloat16")[0, 0] == 42.0
    assert (
        embedding([0], large, scale=33.65, scale_precision="stored", store="bfloat16")[0, 0]
        == 42.25
    )


def test_three_terms_are_rounded_once_or_each_time():
    terms = (np.array([256.0]), np.array([1.0]), np.array([1.0]))
    assert residual_add(*terms, cast="once", store="bfloat16").tolist() == [258.0]
    assert residual_add(*terms, cast="each", store="bfloat16").tolist() == [256.0]


def test_bias_after_the_store_rounds_twice():
    x, weight, bias = np.array([[256.0, 1.0]]), np.ones((1, 2)), np.array([1.0])
    assert linear(x, weight, bias, store="bfloat16").tolist() == [[258.0]]
    after = linear(x, weight, bias, bias_place="after-store", store="bfloat16")
    assert after.tolist() == [[256.0]]


@pytest.mark.parametrize(
    ("value", "nearest", "truncated"),
    [
        (1.0, 1.0, 1.0),
        (1.0 + 2.0**-11, 1.0 + 2.0**-10, 1.0),  # a tie, away from zero
        (1.0 + 3 * 2.0**-11, 1.0 + 2.0**-9, 1.0 + 2.0**-10),
        (-(1.0 + 2.0**-10 + 2.0**-20), -(1.0 + 2.0**-10), -(1.0 + 2.0**-10)),
        (2.0**-130 + 2.0**-140, 2.0**-130, 2.0**-130),
        (np.inf, np.inf, np.inf),
    ],
)
def test_tf32_keeps_ten_bits(value, nearest, truncated):
    assert round_tf32(np.array([value]))[0] == nearest
    assert round_tf32(np.array([value]), truncate=True)[0] == truncated


def test_tf32_operands_change_the_product_by_their_rounding_alone():
    x, weight = (np.random.default_rng(s).standard_normal((8, 64)) for s in (0, 1))
    found = linear(x, weight, operands="tf32")
    assert (found == round_tf32(x) @ round_tf32(weight).T).all()
    assert Enclosure.exactly(found).mid is found


def test_a_centred_sigmoid_errs_by_its_input_and_not_by_its_result():
    x = np.linspace(-30, 30, 200_001).astype(np.float32)
    half = np.float32(0.5)
    inner = np.tanh((x * half).astype(np.float64)).astype(np.float32)  # correctly rounded
    found = x * (half + half * inner)

    def used(sigmoid: str) -> float:
        held = activation_enclosure(x, function="silu", store="float32", sigmoid=sigmoid)
        return float((np.abs(found - held.mid) / (held.radius + np.abs(held.mid) * 2**-24)).max())

    assert used("centred") <= 1.0 < used("quotient")
