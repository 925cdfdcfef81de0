"""Outputs of layers to judge: right ones by torch, right ones of other conventions, wrong ones.

Used by the tests of the certificates and by benchmarks/detection_layers.py, so that what is
published is what is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

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

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
THETA = 10000.0


@dataclass(frozen=True)
class Case:
    """One output with what is declared of it; ``expect`` is a word that the verdict must name."""

    name: str
    output: Tensor
    inputs: dict[str, Any]
    op: Any
    expect: str = ""


def _outlier(x: Tensor) -> Tensor:
    x[..., : max(1, x.shape[-1] // 100)] *= 100.0
    return x


def _zero_row(x: Tensor) -> Tensor:
    x[0] = 0.0
    return x


def _alternate(x: Tensor) -> Tensor:
    x = x.abs()
    x[..., 1::2] *= -1.0
    return x


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "ordinary": lambda x: x,
    "outlier channels": _outlier,
    "constant": lambda x: torch.full_like(x, 0.1),
    "two values": lambda x: torch.sign(x) * 0.3,
    "tiny": lambda x: x * 1e-6,
    "large": lambda x: x * 50.0,
    "sparse": lambda x: x * (x.abs() > 1.6),
    "with a mean": lambda x: x + 8.0,
    "heavy tails": lambda x: torch.sign(x) * torch.exp(2.0 * x.abs()),
    "a zero row": _zero_row,
    "positive": torch.abs,
    "alternating signs": _alternate,
}


@dataclass
class Draw:
    """Tensors of one seed, dtype, kind of data and size."""

    dtype: torch.dtype
    rows: int
    width: int
    kind: str = "ordinary"
    seed: int = 0

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def normal(self, *shape: int, kind: str = "ordinary") -> Tensor:
        values = torch.randn(*shape, generator=self.generator)
        return KINDS[kind](values).to(self.dtype)

    def activations(self) -> Tensor:
        return self.normal(self.rows, self.width, kind=self.kind)

    def gains(self) -> Tensor:
        return (torch.rand(self.width, generator=self.generator) + 0.5).to(self.dtype)


def rms(x: Tensor, weight: Tensor, eps: float = 1e-6, outside: bool = False) -> Tensor:
    """RMSNorm in float32, rounded once."""
    square = x.float().pow(2).mean(-1, keepdim=True)
    root = 1.0 / (square.sqrt() + eps) if outside else torch.rsqrt(square + eps)
    return (x.float() * root * weight.float()).to(x.dtype)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def rope_angles(positions: Tensor, width: int, theta: float = THETA) -> Tensor:
    inv_freq = 1.0 / (theta ** (torch.arange(0, width, 2).float() / width))
    return positions.float()[:, None] * inv_freq


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """RoPE with half pairing in float32, rounded once."""
    cos, sin = (torch.cat([t, t], dim=-1) for t in (angles.cos(), angles.sin()))
    return (x.float() * cos + rotate_half(x.float()) * sin).to(x.dtype)


def positions_of(draw: Draw) -> Tensor:
    """Far apart and odd: most need more digits than bfloat16 has."""
    return torch.arange(draw.rows) * 37 + 259


def correct_cases(draw: Draw) -> Iterator[Case]:
    """Outputs of torch's CPU kernels, and of compositions in float32, as declared."""
    x, weight, y = draw.activations(), draw.gains(), draw.normal(draw.rows, draw.width)
    yield from _correct_norms(draw, x, weight)
    yield from _correct_products(draw, x)
    yield from _correct_elementwise(draw, x, y)
    if draw.width % 2 == 0:
        yield from _correct_ropes(draw, x)


def _correct_norms(draw: Draw, x: Tensor, weight: Tensor) -> Iterator[Case]:
    shape, bias = (draw.width,), draw.normal(draw.width)
    with_weight = {"x": x, "weight": weight}
    yield Case(
        "rms_norm, torch", functional.rms_norm(x, shape, weight, 1e-6), with_weight, RmsNorm(1e-6)
    )
    llama = weight * rms(x, torch.ones(draw.width))
    yield Case("rms_norm, Hugging Face", llama, with_weight, RmsNorm(1e-6, cast="before-weight"))
    gemma = rms(x, 1.0 + weight.float())
    yield Case("rms_norm, 1 + weight", gemma, with_weight, RmsNorm(1e-6, unit_offset=True))
    yield Case(
        "layer_norm, torch",
        functional.layer_norm(x, shape, weight, bias, 1e-5),
        {**with_weight, "bias": bias},
        LayerNorm(1e-5),
    )


def _correct_products(draw: Draw, x: Tensor) -> Iterator[Case]:
    out = min(draw.width, 257)
    kind = (
        draw.kind if draw.kind in ("constant", "two values", "sparse", "positive") else "ordinary"
    )
    weight, bias = draw.normal(out, draw.width, kind=kind), draw.normal(out)
    inputs = {"x": x, "weight": weight}
    yield Case("linear, torch", functional.linear(x, weight), inputs, Linear())
    with_bias = {**inputs, "bias": bias}
    yield Case("linear with bias, torch", functional.linear(x, weight, bias), with_bias, Linear())


def _correct_elementwise(draw: Draw, x: Tensor, y: Tensor) -> Iterator[Case]:
    yield Case("silu, torch", functional.silu(x), {"x": x}, Activation("silu"))
    yield Case("gelu, torch", functional.gelu(x), {"x": x}, Activation("gelu"))
    approximate = functional.gelu(x, approximate="tanh")
    yield Case("gelu tanh, torch", approximate, {"x": x}, Activation("gelu-tanh"))
    both = {"gate": x, "up": y}
    unfused = functional.silu(x) * y
    yield Case("swiglu, unfused", unfused, both, Gated(cast="before-product"))
    fused = (functional.silu(x.float()) * y.float()).to(x.dtype)
    yield Case("swiglu, fused", fused, both, Gated())
    yield Case("softmax, torch", torch.softmax(x, -1), {"x": x}, Softmax())
    yield Case("residual add, torch", x + y, {"a": x, "b": y}, ResidualAdd())
    ids = torch.randint(0, draw.rows, (5,), generator=draw.generator)
    scaled = functional.embedding(ids, x) * torch.tensor(33.94, dtype=x.dtype)
    yield Case(
        "embedding, scale stored",
        scaled,
        {"ids": ids, "table": x},
        Embedding(33.94, scale_precision="stored"),
    )


def _correct_ropes(draw: Draw, x: Tensor) -> Iterator[Case]:
    positions = positions_of(draw)
    angles = rope_angles(positions, draw.width)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    wide = [torch.cat([t, t], dim=-1) for t in (cos, sin)]
    products = x * wide[0] + rotate_half(x) * wide[1]
    yield Case(
        "rope, Hugging Face", products, {"x": x, "cos": cos, "sin": sin}, Rope(cast="products")
    )
    fused = turn(x, angles)
    yield Case("rope, fused", fused, {"x": x, "positions": positions}, Rope(theta=THETA))
    inv_freq = 1.0 / (THETA ** (torch.arange(0, draw.width, 2).float() / draw.width))
    inputs = {"x": x, "positions": positions, "inv_freq": inv_freq}
    yield Case("rope, fused, own frequencies", fused, inputs, Rope())


def convention_cases(draw: Draw) -> Iterator[Case]:
    """Right outputs of a convention that is not the declared one; ``expect`` names it."""
    x, weight, y = draw.activations(), draw.gains(), draw.normal(draw.rows, draw.width)
    yield Case(
        "gelu tanh for gelu",
        functional.gelu(x, approximate="tanh"),
        {"x": x},
        Activation("gelu"),
        "function=gelu-tanh",
    )
    if x.dtype == torch.float32:
        yield from _tf32_case(draw, x)
        return
    yield from _stored_cases(x, weight, y)
    positions = positions_of(draw)
    angles = rope_angles(positions, draw.width)
    stored = [torch.cat([t, t], dim=-1).to(x.dtype) for t in (angles.cos(), angles.sin())]
    yield Case(
        "rope, Hugging Face for fused",
        x * stored[0] + rotate_half(x) * stored[1],
        {"x": x, "positions": positions},
        Rope(theta=THETA),
        "table=",
    )


def _stored_cases(x: Tensor, weight: Tensor, y: Tensor) -> Iterator[Case]:
    """Conventions that only show where the output format is coarser than float32."""
    both = {"x": x, "weight": weight}
    yield Case(
        "rms_norm, Hugging Face for fused",
        weight * rms(x, torch.ones(x.shape[-1])),
        both,
        RmsNorm(1e-6),
        "cast=before-weight",
    )
    yield Case(
        "rms_norm, 1 + weight stored",
        rms(x, 1.0 + weight),
        both,
        RmsNorm(1e-6, unit_offset=True),
        "offset_sum=stored",
    )
    root = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)
    yield Case(
        "rms_norm, reciprocal root stored",
        (x.float() * root.float() * weight.float()).to(x.dtype),
        both,
        RmsNorm(1e-6),
        "reciprocal=stored",
    )
    yield Case(
        "swiglu, unfused for fused",
        functional.silu(x) * y,
        {"gate": x, "up": y},
        Gated(),
        "cast=before-product",
    )
    scale = 33.94
    yield Case(
        "embedding scale stored",
        x * torch.tensor(scale, dtype=x.dtype),
        {"ids": torch.arange(x.shape[0]), "table": x},
        Embedding(scale),
        "scale_precision=stored",
    )


def _tf32_case(draw: Draw, x: Tensor) -> Iterator[Case]:
    weight = draw.normal(64, draw.width)

    def tf32(values: Tensor) -> Tensor:
        words = values.view(torch.int32)
        # To nearest, ties away, as cvt.rna.tf32.f32: bit 12 is half of the last bit kept.
        return ((words + 0x1000) & -0x2000).view(torch.float32)

    output = functional.linear(tf32(x), tf32(weight))
    yield Case("linear, TF32", output, {"x": x, "weight": weight}, Linear(), "operands=tf32")
