"""Angles by a recurrence in FP32, as ggml computes them: within their bound of the power, and no wider
than it takes."""

from __future__ import annotations

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.certificates.certify import certify
from verify.reference.certificates.result import Outcome
from verify.reference.certificates.rotary import Rope
from verify.reference.layers.rope import rope, rope_tables

OP = Rope(pairing="interleaved", theta=1e5, rotated=64, angle="recurrence")


def turned(theta: float, ratio_steps: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Heads [5, 2, 64] at positions up to 3000, turned in FP32 by a loop over the pairs."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 2, 64)).astype(np.float32)
    positions = np.array([0, 1, 17, 400, 3000])
    ratio = np.float32(theta ** (-2 / 64))
    for _ in range(ratio_steps):
        ratio = np.nextafter(ratio, np.float32(1))
    out = np.empty_like(x)
    for row, position in enumerate(positions):
        angle = np.float32(position)
        for pair in range(32):
            c, s = np.cos(angle), np.sin(angle)
            a, b = x[row, :, 2 * pair], x[row, :, 2 * pair + 1]
            out[row, :, 2 * pair], out[row, :, 2 * pair + 1] = a * c - b * s, a * s + b * c
            angle = angle * ratio
    return out, {"x": x, "positions": positions[:, None].astype(np.float64)}


@pytest.mark.parametrize("steps", [0, 1])
def test_the_loop_of_ggml_is_explained(steps: int) -> None:
    """Also where its power is one ULP off."""
    out, inputs = turned(1e5, steps)
    assert certify(out, inputs, OP, store="float32").outcome is not Outcome.DEFECT


def test_a_power_far_off_and_another_base_are_not() -> None:
    for theta, steps in ((1e5, 40), (1e4, 0)):
        out, inputs = turned(theta, steps)
        assert certify(out, inputs, OP, store="float32").outcome is Outcome.DEFECT


def test_the_bound_holds_the_exact_angles() -> None:
    """The recurrence and the power agree within a few roundings of every product."""
    cos, sin = rope_tables(np.arange(100), theta=1e5, rotated=64, angle="recurrence")
    exact, _ = rope_tables(np.arange(100), theta=1e5, rotated=64, angle="exact")
    # Each of 31 products rounds once (2^-24) besides the error of the ratio (twice that).
    angle = np.arange(100)[:, None] * 1e5 ** (-np.arange(0, 64, 2) / 64)
    assert (np.abs(cos.mid - exact.mid) <= 4 * 2.0**-24 * np.arange(32) * angle + 1e-6).all()
    assert np.isfinite(rope(np.ones((100, 64)), cos.mid, sin.mid)).all()


def test_a_recurrence_needs_its_base() -> None:
    with pytest.raises(ArgumentError, match="theta"):
        rope_tables([1.0], inv_freq=[1.0], angle="recurrence")
