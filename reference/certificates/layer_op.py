"""What a layer certificate needs to know of an operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from verify.errors import ArgumentError
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import Array
from verify.reference.layers.enclosure import Enclosure

Inputs = Mapping[str, Any]


class Variant(NamedTuple):
    """The same operation done differently, on changed inputs, or in another arithmetic, and what
    to call that.

    ``subtle`` variants can hide inside the rounding of single elements, so they are looked for in
    every output; the others are only tried where an output is already known to be wrong.
    """

    name: str
    op: LayerOp
    subtle: bool = False
    inputs: Inputs | None = None
    arithmetic: Arithmetic | None = None


class LayerOp(Protocol):
    """An operation with its parameters and its declared roundings; ops are frozen dataclasses."""

    @property
    def name(self) -> str:
        """What reports call it, for example ``rms_norm``."""
        ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that must be given."""
        ...

    @property
    def optional(self) -> tuple[str, ...]:
        """Names of further inputs that may be given."""
        ...

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        """What the kernel can hold just before its last rounding to ``store``."""
        ...

    def exact(self, inputs: Inputs) -> Array:
        """The result without any rounding, in FP64."""
        ...

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        """Other roundings that an implementation may declare: a difference is PRECISION."""
        ...

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        """Known ways to get the operation wrong: a match names a DEFECT."""
        ...


def check_inputs(op: LayerOp, inputs: Inputs) -> None:
    """Refuse inputs that are missing or that the operation does not read.

    Raises:
        ArgumentError: names the inputs concerned and those that are read.
    """
    missing = [name for name in op.inputs if inputs.get(name) is None]
    foreign = [name for name in inputs if name not in op.inputs + op.optional]
    if missing or foreign:
        optional = f"; optional {', '.join(op.optional)}" if op.optional else ""
        raise ArgumentError(
            f"inputs of {op.name} do not fit",
            where=", ".join(missing or foreign),
            found="missing" if missing else "a name that is not read",
            allowed=", ".join(op.inputs) + optional,
        )


def without(inputs: Inputs, name: str) -> Inputs:
    """The inputs with one left out."""
    return {key: value for key, value in inputs.items() if key != name}
