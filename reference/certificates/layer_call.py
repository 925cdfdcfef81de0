"""One call of a layer, and the evidence that an output gives about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from verify.errors import ArgumentError
from verify.formats import get_format
from verify.reference.certificates.evidence import Evidence
from verify.reference.certificates.layer_op import Inputs, LayerOp, Variant
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import Array
from verify.reference.layers.enclosure import Enclosure, Noise


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer: all that the reference needs beside the output.

    What the reference finds is kept with the call: two outputs of one call are judged for the price
    of one.
    """

    op: LayerOp
    inputs: Inputs
    arithmetic: Arithmetic
    store: str

    @cached_property
    def held(self) -> Enclosure:
        return self.op.enclosure(self.inputs, self.store, self.arithmetic)

    @cached_property
    def exact(self) -> Array:
        return self.op.exact(self.inputs)

    @cached_property
    def changed(self) -> dict[str, Array]:
        """The middles of what its subtle mistakes would give, by name."""
        return {variant.name: self.made(variant).held.mid for variant in self.subtle()}

    def made(self, variant: Variant) -> LayerCall:
        return replace(
            self,
            op=variant.op,
            inputs=variant.inputs or self.inputs,
            arithmetic=variant.arithmetic or self.arithmetic,
        )

    def subtle(self) -> list[Variant]:
        return [variant for variant in self.op.mistakes(self.inputs) if variant.subtle]


def gather(actual: Array, call: LayerCall) -> Evidence:
    """The evidence of one output, as rows of the last axis.

    Raises:
        ArgumentError: an output of another size than the layer gives.
    """
    held, exact = call.held, call.exact
    width = held.mid.shape[-1] if held.mid.ndim else 1
    if actual.size != held.mid.size or (actual.ndim and actual.shape[-1] != width):
        raise ArgumentError(
            f"the output is not of the shape that {call.op.name} gives",
            where="actual",
            found=f"shape {actual.shape}",
            allowed=f"shape {held.mid.shape}",
        )
    shape = (-1, width)
    return Evidence(actual.reshape(shape), exact.reshape(shape), _flat(held, shape), call.store)


def _flat(held: Enclosure, shape: tuple[int, int]) -> Enclosure:
    full = held.mid.shape

    def flat(values: Array) -> Array:
        return np.broadcast_to(values, full).reshape(shape)

    noise = held.noise
    return replace(
        held,
        mid=flat(held.mid),
        lo=flat(held.lo),
        hi=flat(held.hi),
        near_lo=flat(held.near_lo),
        near_hi=flat(held.near_hi),
        noise=Noise(flat(noise.mean_abs), flat(noise.rms), flat(noise.common), flat(noise.drift)),
    )


def output_format(actual: Any) -> str:
    """The storage format of an output, from its dtype.

    Raises:
        ArgumentError: float64 (the reference has no more digits), or not a float format.
    """
    name = str(getattr(actual, "dtype", "")).removeprefix("torch.")
    if name in ("", "float64", "object"):
        raise ArgumentError(
            "the storage format of the output is not known",
            where="actual",
            found=name or type(actual).__name__,
            allowed="a tensor of the output's own dtype, or store='bfloat16' and the like",
        )
    return get_format(name).name
