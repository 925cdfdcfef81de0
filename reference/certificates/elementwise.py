"""Activations, gated products, softmax, embedding and residual addition as operations that can be
certified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verify.reference.certificates.layer_op import Inputs, Variant
from verify.reference.layers.activations import (
    FUNCTIONS,
    SIGMOIDS,
    Function,
    GateCast,
    Sigmoid,
    activation_enclosure,
    gated_enclosure,
)
from verify.reference.layers.arithmetic import FP32_UNIT, Arithmetic
from verify.reference.layers.checks import (
    Array,
    as_float64,
    check_choice,
    check_number,
    check_shape,
)
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to
from verify.reference.layers.lookup import (
    ScalePrecision,
    SumCast,
    embedding_enclosure,
    residual_add_enclosure,
)
from verify.reference.layers.softmax import SoftmaxCast, softmax_enclosure


def _other_function(function: Function) -> Function | None:
    """The two GELUs are conventions of each other."""
    pairs: dict[Function, Function] = {"gelu": "gelu-tanh", "gelu-tanh": "gelu"}
    return pairs.get(function)


@dataclass(frozen=True)
class Activation:
    """SiLU or GELU of ``x``; parameters as in
    :func:`verify.reference.layers.activations.activation_enclosure`."""

    function: Function
    sigmoid: Sigmoid = "quotient"

    inputs = ("x",)
    optional = ()

    def __post_init__(self) -> None:
        check_choice("function", self.function, FUNCTIONS)
        check_choice("sigmoid", self.sigmoid, SIGMOIDS)

    @property
    def name(self) -> str:
        return self.function

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        return activation_enclosure(
            inputs["x"],
            function=self.function,
            store=store,
            arithmetic=arithmetic,
            sigmoid=self.sigmoid,
        )

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        other = _other_function(self.function)
        if other:
            yield Variant(f"function={other}", replace(self, function=other))

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        for function in FUNCTIONS:
            if function not in (self.function, _other_function(self.function)):
                yield Variant(f"{function} for {self.function}", replace(self, function=function))


@dataclass(frozen=True)
class Gated:
    """``f(gate) * up`` (SwiGLU, GeGLU); inputs ``gate`` and ``up`` of one shape. Parameters as in
    :func:`verify.reference.layers.activations.gated_enclosure`."""

    function: Function = "silu"
    cast: GateCast = "after-product"
    sigmoid: Sigmoid = "quotient"

    inputs = ("gate", "up")
    optional = ()

    def __post_init__(self) -> None:
        check_choice("function", self.function, FUNCTIONS)

    @property
    def name(self) -> str:
        return f"gated {self.function}"

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        return gated_enclosure(
            inputs["gate"],
            inputs["up"],
            function=self.function,
            cast=self.cast,
            store=store,
            arithmetic=arithmetic,
            sigmoid=self.sigmoid,
        )

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        cast: GateCast = "before-product" if self.cast == "after-product" else "after-product"
        yield Variant(f"cast={cast}", replace(self, cast=cast))
        other = _other_function(self.function)
        if other:
            yield Variant(f"function={other}", replace(self, function=other))
            both = replace(self, function=other, cast=cast)
            yield Variant(f"function={other}, cast={cast}", both)

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        swapped = {"gate": inputs["up"], "up": inputs["gate"]}
        yield Variant("gate and up exchanged", self, inputs=swapped)
        for function in FUNCTIONS:
            if function not in (self.function, _other_function(self.function)):
                yield Variant(f"{function} for {self.function}", replace(self, function=function))


@dataclass(frozen=True)
class Softmax:
    """Softmax of ``scale * x`` along the last axis. Parameters as in
    :func:`verify.reference.layers.softmax.softmax_enclosure`."""

    scale: float = 1.0
    cast: SoftmaxCast = "after-division"

    name = "softmax"
    inputs = ("x",)
    optional = ()

    def __post_init__(self) -> None:
        check_number("scale", self.scale, least=0.0, strict=True)

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        return softmax_enclosure(
            inputs["x"], scale=self.scale, cast=self.cast, store=store, arithmetic=arithmetic
        )

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        cast: SoftmaxCast = "before-division" if self.cast == "after-division" else "after-division"
        yield Variant(f"cast={cast}", replace(self, cast=cast))

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        base = replace(self, scale=self.scale * float(np.log(2.0)))
        yield Variant("powers of 2 for powers of e", base)
        if self.scale != 1.0:
            yield Variant("scale left out", replace(self, scale=1.0))
            yield Variant("scale applied twice", replace(self, scale=self.scale**2))


@dataclass(frozen=True)
class Embedding:
    """``table[ids] * scale``. Parameters as in
    :func:`verify.reference.layers.lookup.embedding`."""

    scale: float = 1.0
    scale_precision: ScalePrecision = "working"

    name = "embedding"
    inputs = ("ids", "table")
    optional = ()

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        del arithmetic  # one multiplication: nothing to declare
        return embedding_enclosure(
            inputs["ids"],
            inputs["table"],
            scale=self.scale,
            scale_precision=self.scale_precision,
            store=store,
        )

    def exact(self, inputs: Inputs) -> Array:
        return (
            replace(self, scale_precision="working").enclosure(inputs, "float64", Arithmetic()).mid
        )

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        if self.scale != 1.0:
            other: ScalePrecision = "stored" if self.scale_precision == "working" else "working"
            yield Variant(f"scale_precision={other}", replace(self, scale_precision=other))
            for fmt in ("bfloat16", "float16"):
                rounded = float(round_to(np.asarray(self.scale), fmt))
                yield Variant(f"scale rounded to {fmt}", Embedding(scale=rounded))

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        if self.scale != 1.0:
            yield Variant("scale left out", Embedding())
            yield Variant("scale applied twice", replace(self, scale=self.scale**2))


@dataclass(frozen=True)
class ResidualAdd:
    """``a + b`` (+ ``c``), left to right. ``cast`` as in
    :func:`verify.reference.layers.lookup.residual_add`."""

    cast: SumCast = "each"

    name = "residual_add"
    inputs = ("a", "b")
    optional = ("c",)

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        del arithmetic
        return residual_add_enclosure(*_terms(inputs), cast=self.cast, store=store)

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        other: SumCast = "once" if self.cast == "each" else "each"
        yield Variant(f"cast={other}", replace(self, cast=other))

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        for kept, name in (("b", "a"), ("a", "b")):
            zero = {**inputs, name: np.zeros_like(as_float64(inputs[kept], kept))}
            yield Variant(f"{name} left out", self, inputs=zero)


@dataclass(frozen=True)
class Product:
    """``a * b`` per element, as after an activation that was stored; one rounding, no freedom."""

    name = "product"
    inputs = ("a", "b")
    optional = ()

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        del arithmetic
        a, b = as_float64(inputs["a"], "a"), as_float64(inputs["b"], "b")
        check_shape("b", b, a.shape, "the shape of a")
        return Enclosure.exactly(a).scaled(b).computed(FP32_UNIT)

    def exact(self, inputs: Inputs) -> Array:
        return self.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        return iter(())

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        for kept, name in (("b", "a"), ("a", "b")):
            ones = {**inputs, name: np.ones_like(as_float64(inputs[kept], kept))}
            yield Variant(f"{name} left out", self, inputs=ones)


def _terms(inputs: Inputs) -> list[Any]:
    return [inputs[name] for name in ("a", "b", "c") if inputs.get(name) is not None]
