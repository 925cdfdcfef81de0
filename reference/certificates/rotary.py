"""Rotary position embedding as an operation that can be certified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from verify.errors import ArgumentError
from verify.reference.certificates.layer_op import Inputs, Variant
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import Array, as_float64
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to
from verify.reference.layers.rope import (
    Angle,
    Pairing,
    RopeCast,
    rope_enclosure,
    rope_tables,
)

# Bases of published models; a wrong one is usually another of these.
COMMON_THETAS = (1e4, 1e5, 5e5, 1e6, 1e7)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of ``x`` [..., head_dim], from the table that the kernel read (inputs
    ``cos``, ``sin`` [..., rotated / 2]), or from ``positions`` with ``inv_freq`` [rotated / 2] or
    ``theta`` (and ``rotated``, by default the whole head).

    ``positions`` broadcasts against the axes of ``x`` before the last. Other parameters as in
    :func:`verify.reference.layers.rope.rope` and ``rope_tables``.
    """

    pairing: Pairing = "half"
    cast: RopeCast = "after-sum"
    theta: float | None = None
    rotated: int | None = None
    angle: Angle = "float32"
    table: str = "float32"
    """Format in which the cosines and sines are held before they are multiplied."""

    name = "rope"
    inputs = ("x",)
    optional = ("cos", "sin", "positions", "inv_freq")

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        cos, sin = self._tables(inputs, arithmetic)
        return rope_enclosure(
            inputs["x"], cos, sin, pairing=self.pairing, cast=self.cast, store=store
        )

    def _tables(self, inputs: Inputs, arithmetic: Arithmetic) -> tuple[Enclosure, Enclosure]:
        if inputs.get("cos") is not None and inputs.get("sin") is not None:
            return (
                Enclosure.exactly(as_float64(inputs["cos"], "cos")),
                Enclosure.exactly(as_float64(inputs["sin"], "sin")),
            )
        inv_freq = inputs.get("inv_freq")
        head = as_float64(inputs["x"], "x").shape[-1]
        cos, sin = rope_tables(
            _needed(inputs, "positions"),
            inv_freq=inv_freq,
            theta=self.theta if inv_freq is None else None,
            rotated=self.rotated or head,
            angle=self.angle,
            arithmetic=arithmetic,
        )
        if self.table == "float32":
            return cos, sin
        return cos.stored(self.table), sin.stored(self.table)

    def exact(self, inputs: Inputs) -> Array:
        ideal = replace(self, angle="exact", table="float32")
        return ideal.enclosure(inputs, "float64", Arithmetic()).mid

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        cast: RopeCast = "products" if self.cast == "after-sum" else "after-sum"
        yield Variant(f"cast={cast}", replace(self, cast=cast))
        for table in ("float32", "bfloat16", "float16"):
            for chosen in (self.cast, cast):
                if table != self.table:
                    name = f"table={table}" + (f", cast={chosen}" if chosen == cast else "")
                    yield Variant(name, replace(self, table=table, cast=chosen))
        angle: Angle = "exact" if self.angle == "float32" else "float32"
        yield Variant(f"angle={angle}", replace(self, angle=angle))

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        other: Pairing = "interleaved" if self.pairing == "half" else "half"
        yield Variant(f"pairing {other} for {self.pairing}", replace(self, pairing=other))
        if inputs.get("cos") is not None:
            sine = {**inputs, "sin": -as_float64(inputs["sin"], "sin")}
            yield Variant("turned the other way", self, inputs=sine)
            return
        places = as_float64(inputs["positions"], "positions")
        for fmt in ("bfloat16", "float16"):
            rounded = {**inputs, "positions": round_to(places, fmt)}
            yield Variant(f"positions rounded to {fmt}", self, inputs=rounded)
        for step in (1, -1):
            moved = {**inputs, "positions": places + step}
            yield Variant(f"positions off by {step:+d}", self, inputs=moved)
        yield Variant("turned the other way", self, inputs={**inputs, "positions": -places})
        yield Variant("not turned at all", self, inputs={**inputs, "positions": 0.0 * places})
        if self.theta is not None and inputs.get("inv_freq") is None:
            for theta in COMMON_THETAS:
                if theta != self.theta:
                    name = f"theta {theta:g} for {self.theta:g}"
                    yield Variant(name, replace(self, theta=theta))


def _needed(inputs: Inputs, name: str) -> Any:
    if inputs.get(name) is None:
        raise ArgumentError(
            "RoPE needs its angles",
            where="inputs",
            found=", ".join(sorted(inputs)),
            allowed="cos and sin, or positions (with theta, or with inv_freq)",
        )
    return inputs[name]
