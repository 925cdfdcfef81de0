"""Products with 8-bit activations: the vectorised model against one element at a time."""

from __future__ import annotations

import numpy as np
import pytest

from verify.dumps.llamacpp.blocks import BLOCK, Weight, product


def one(x: np.ndarray, scaled: np.ndarray, minimum: np.ndarray | None) -> float:
    """A single output, block by block, as ggml spells it."""
    total = 0.0
    for block in range(len(x) // BLOCK):
        part = x[block * BLOCK : (block + 1) * BLOCK].astype(np.float32)
        largest = np.abs(part).max()
        codes = [int(np.rint(v * (np.float32(127) / largest))) if largest else 0 for v in part]
        scale = largest / np.float32(127)
        stored = float(np.float16(scale))
        total += sum(
            stored * code * float(w)
            for code, w in zip(codes, scaled[block * BLOCK :], strict=False)
        )
        if minimum is not None:
            total += float(np.float16(scale * np.float32(sum(codes)))) * float(minimum[block])
    return total


@pytest.mark.parametrize("with_minimum", [False, True])
def test_the_model_is_that_of_single_elements(with_minimum: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4 * BLOCK)).astype(np.float32)
    x[1, :BLOCK] = 0.0
    scaled = rng.standard_normal((5, 4 * BLOCK))
    minimum = rng.standard_normal((5, 4)) if with_minimum else None
    exact, size = product(x, Weight("test", scaled, minimum))
    wanted = [
        [one(row, s, None if minimum is None else minimum[i]) for i, s in enumerate(scaled)]
        for row in x
    ]
    # Both are float64 sums of the same 128 products: some hundred roundings of 2^-53.
    assert np.allclose(exact, wanted, rtol=0, atol=1e-12 * float(size.max()))
    assert (size >= np.abs(exact)).all()


def test_another_rounding_of_the_activations_is_seen() -> None:
    """What sets the model apart from float32 activations is far above the roundings of its sums."""
    rng = np.random.default_rng(1)
    x, scaled = rng.standard_normal((2, 64)).astype(np.float32), rng.standard_normal((4, 64))
    exact, size = product(x, Weight("test", scaled, None))
    assert (np.abs(x.astype(np.float64) @ scaled.T - exact) > 2.0**-24 * 6 * size).mean() > 0.9
