"""RMSNorm and LayerNorm as operations that can be certified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from verify.reference.certificates.layer_op import Inputs, Variant, without
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import Array, as_float64, check_number
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.norms import (
    Cast,
    Where,
    layer_norm_enclosure,
    rms_norm_enclosure,
)

# What configurations of published models hold; a wrong one is usually another of these.
COMMON_EPS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0)


def _same_eps(a: float, b: float) -> bool:
    """A configuration's 1e-5 may have passed through float32, which makes no other rule of it."""
    return bool(np.float32(a) == np.float32(b))


@dataclass(frozen=True)
class RmsNorm:
    """``x / sqrt(mean(x^2) + eps) * weight``; inputs ``x`` [..., hidden], ``weight`` [hidden].

    Parameters as in :func:`verify.reference.layers.norms.rms_norm_enclosure`.
    """

    eps: float
    unit_offset: bool = False
    cast: Cast = "after-weight"
    offset_sum: Where = "working"
    reciprocal: Where = "working"
    eps_place: Literal["inside-root", "outside-root"] = "inside-root"

    name = "rms_norm"
    inputs = ("x",)
    optional = ("weight",)

    def __post_init__(self) -> None:
        check_number("eps", self.eps, least=0.0)

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        return rms_norm_enclosure(
            inputs["x"],
            inputs.get("weight"),
            eps=self.eps,
            unit_offset=self.unit_offset,
            cast=self.cast,
            offset_sum=self.offset_sum,
            reciprocal=self.reciprocal,
            eps_place=self.eps_place,
            store=store,
            arithmetic=arithmetic,
        )

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        other: Cast = "before-weight" if self.cast == "after-weight" else "after-weight"
        yield Variant(f"cast={other}", replace(self, cast=other))
        if self.unit_offset:
            summed: Where = "stored" if self.offset_sum == "working" else "working"
            yield Variant(f"offset_sum={summed}", replace(self, offset_sum=summed))
            both = replace(self, offset_sum=summed, cast=other)
            yield Variant(f"offset_sum={summed}, cast={other}", both)
        held: Where = "stored" if self.reciprocal == "working" else "working"
        yield Variant(f"reciprocal={held}", replace(self, reciprocal=held))
        yield Variant(
            f"reciprocal={held}, cast={other}", replace(self, reciprocal=held, cast=other)
        )

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        yield Variant(
            "eps added outside the root", replace(self, eps_place="outside-root"), subtle=True
        )
        for eps in COMMON_EPS:
            if not _same_eps(eps, self.eps):
                yield Variant(f"eps {eps:g} for {self.eps:g}", replace(self, eps=eps), subtle=True)
        if inputs.get("weight") is None:
            return
        if self.unit_offset:
            yield Variant("1 not added to the weight", replace(self, unit_offset=False))
            twice = {**inputs, "weight": as_float64(inputs["weight"], "weight") + 1.0}
            yield Variant("1 added to the weight twice", self, inputs=twice)
        else:
            yield Variant("1 added to the weight", replace(self, unit_offset=True))
        yield Variant("weight left out", self, inputs=without(inputs, "weight"))


@dataclass(frozen=True)
class LayerNorm:
    """``(x - mean) / sqrt(var + eps) * weight + bias``; inputs ``x`` [..., hidden], ``weight`` and
    ``bias`` [hidden]. Parameters as in
    :func:`verify.reference.layers.norms.layer_norm_enclosure`."""

    eps: float
    cast: Cast = "after-weight"
    divisor: Literal["n", "n-1"] = "n"

    name = "layer_norm"
    inputs = ("x",)
    optional = ("weight", "bias")

    def __post_init__(self) -> None:
        check_number("eps", self.eps, least=0.0)

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        return layer_norm_enclosure(
            inputs["x"],
            inputs.get("weight"),
            inputs.get("bias"),
            eps=self.eps,
            cast=self.cast,
            divisor=self.divisor,
            store=store,
            arithmetic=arithmetic,
        )

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        other: Cast = "before-weight" if self.cast == "after-weight" else "after-weight"
        yield Variant(f"cast={other}", replace(self, cast=other))

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        for eps in COMMON_EPS:
            if not _same_eps(eps, self.eps):
                yield Variant(f"eps {eps:g} for {self.eps:g}", replace(self, eps=eps), subtle=True)
        if as_float64(inputs["x"], "x").shape[-1] > 1:
            yield Variant("variance over n - 1", replace(self, divisor="n-1"), subtle=True)
        if inputs.get("bias") is not None:
            yield Variant("bias left out", self, inputs=without(inputs, "bias"))
        if inputs.get("weight") is not None:
            yield Variant("weight left out", self, inputs=without(inputs, "weight"))
