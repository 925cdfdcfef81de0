"""Layers done wrong in the ways that inference engines have been wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from tests.support.layer_cases import (
    THETA,
    Case,
    Draw,
    positions_of,
    rms,
    rope_angles,
    turn,
)
from verify.reference.certificates.elementwise import (
    Activation,
    Embedding,
    Gated,
    ResidualAdd,
    Softmax,
)
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.norm import LayerNorm, RmsNorm
from verify.reference.certificates.rotary import Rope

SHIFT = 1.0 + 2.0**-8


def fault_cases(draw: Draw) -> Iterator[Case]:
    """``expect`` is a part of the name that the certificate must give the fault; empty where it
    only has to find it."""
    for group in (norm_faults, product_faults, elementwise_faults, rope_faults):
        yield from group(draw)


def norm_faults(draw: Draw) -> Iterator[Case]:
    x, weight = draw.activations(), draw.gains()
    inputs = {"x": x, "weight": weight}
    yield Case("eps 1e-5 for 1e-6", rms(x, weight, 1e-5), inputs, RmsNorm(1e-6), "eps 1e-05")
    quiet = x.clone()
    quiet[::4] *= 1e-3  # outside the root, eps shows on rows of low energy only
    low = {"x": quiet, "weight": weight}
    yield Case(
        "eps outside the root", rms(quiet, weight, outside=True), low, RmsNorm(1e-6), "outside"
    )
    yield Case(
        "+1 twice",
        rms(x, weight.float() + 2.0),
        inputs,
        RmsNorm(1e-6, unit_offset=True),
        "added to the weight twice",
    )
    yield Case("+1 left out", rms(x, weight), inputs, RmsNorm(1e-6, unit_offset=True), "not added")
    scaled = rms(x, weight.float() * SHIFT)
    yield Case("norm scaled by 1 + 2^-8", scaled, inputs, RmsNorm(1e-6), "1.003")
    wide = x.float()
    root = (wide.var(-1, keepdim=True) + 1e-5).sqrt()
    biased = ((wide - wide.mean(-1, keepdim=True)) / root * weight.float()).to(x.dtype)
    yield Case("variance over n - 1", biased, inputs, LayerNorm(1e-5), "n - 1")


def product_faults(draw: Draw) -> Iterator[Case]:
    x, weight = draw.activations(), draw.normal(draw.width, draw.width)
    bias = draw.normal(draw.width)
    inputs = {"x": x, "weight": weight}
    for lost in (1, 16):
        cut = functional.linear(x[:, :-lost], weight[:, :-lost])
        yield Case(f"last {lost} of K left out", cut, inputs, Linear(), f"last {lost} of K")
    yield Case("weight transposed", functional.linear(x, weight.T), inputs, Linear(), "transposed")
    right = functional.linear(x, weight)
    zeroed = right.clone()
    zeroed[:, 17] = 0.0
    yield Case("one channel zeroed", zeroed, inputs, Linear(), "column 17")
    scaled = (x.double() @ weight.double().T * SHIFT).to(x.dtype)
    yield Case("product scaled by 1 + 2^-8", scaled, inputs, Linear(), "1.003")
    yield Case("accumulated in bfloat16", add_in_steps(x, weight, torch.bfloat16), inputs, Linear())
    with_bias = {**inputs, "bias": bias}
    yield Case("bias left out", right, with_bias, Linear(), "bias left out")
    # Weights of 4 bits with zero point 8 read with 9: the difference is scale * sum(x).
    off = (x.double() @ (weight.double() - 2.0**-8).T).to(x.dtype)
    yield Case("zero point off by one", off, inputs, Linear())
    stale = right.clone()
    stale[-1] = stale[0]
    yield Case("one stale row", stale, inputs, Linear(), f"row {draw.rows - 1} ")


def add_in_steps(x: Tensor, weight: Tensor, dtype: torch.dtype, step: int = 16) -> Tensor:
    """Products summed with the accumulator rounded to ``dtype`` every ``step`` of K."""
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=dtype)
    for start in range(0, x.shape[1], step):
        part = x[:, start : start + step].float() @ weight[:, start : start + step].float().T
        total = (total.float() + part).to(dtype)
    return total.to(x.dtype)


def elementwise_faults(draw: Draw) -> Iterator[Case]:
    x, y = draw.activations(), draw.normal(draw.rows, draw.width)
    both = {"gate": x, "up": y}
    swapped = (functional.silu(y.float()) * x.float()).to(x.dtype)
    yield Case("gate and up exchanged", swapped, both, Gated(), "exchanged")
    other = (functional.gelu(x.float()) * y.float()).to(x.dtype)
    yield Case("gelu for silu", other, both, Gated(), "gelu for silu")
    yield Case("silu for gelu", functional.silu(x), {"x": x}, Activation("gelu"), "silu for gelu")
    base = (torch.softmax(x.float() * float(torch.log(torch.tensor(2.0))), -1)).to(x.dtype)
    yield Case("softmax in base 2", base, {"x": x}, Softmax(), "powers of 2")
    dropped = torch.softmax(x[:, :-1].float(), -1).to(x.dtype)
    dropped = torch.cat([dropped, torch.zeros_like(dropped[:, :1])], dim=-1)
    yield Case("softmax without its last element", dropped, {"x": x}, Softmax())
    ids = torch.arange(draw.rows)
    table = {"ids": ids, "table": x}
    yield Case("embedding scale left out", x, table, Embedding(33.94), "scale left out")
    yield Case("residual left out", x, {"a": x, "b": y}, ResidualAdd(), "b left out")


def rope_faults(draw: Draw) -> Iterator[Case]:
    x, positions = draw.activations(), positions_of(draw)
    inputs = {"x": x, "positions": positions}
    op = Rope(theta=THETA)
    rounded = rope_angles(positions.to(torch.bfloat16), draw.width)
    yield Case("positions in bfloat16", turn(x, rounded), inputs, op, "rounded to bfloat16")
    angles = rope_angles(positions, draw.width)
    yield Case("wrong theta", turn(x, rope_angles(positions, draw.width, 5e5)), inputs, op, "theta")
    order = torch.cat([torch.arange(0, draw.width, 2), torch.arange(1, draw.width, 2)])
    paired = torch.empty_like(x)
    paired[:, order] = turn(x[:, order], angles)
    yield Case("wrong pairing", paired, inputs, op, "interleaved")
    yield Case("turned the other way", turn(x, -angles), inputs, op, "other way")
    later = rope_angles(positions + 1, draw.width)
    yield Case("positions off by one", turn(x, later), inputs, op, "off by +1")
