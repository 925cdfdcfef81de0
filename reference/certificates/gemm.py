"""Linear layers as operations that can be certified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from verify.formats import get_format
from verify.reference.certificates.layer_op import Inputs, Variant, without
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.checks import Array, as_float64
from verify.reference.layers.enclosure import Enclosure
from verify.reference.layers.grid import round_to
from verify.reference.layers.linear import (
    OPERANDS,
    BiasPlace,
    Operands,
    linear,
    linear_enclosure,
)
from verify.reference.layers.truncate import A100, H200, V100

_TF32: tuple[Operands, ...] = ("tf32", "tf32-truncated")

# A loop over K in blocks loses its remainder, or its last block.
TRUNCATIONS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Linear:
    """``x @ weight.T + bias``; inputs ``x`` [..., in], ``weight`` [out, in], ``bias`` [out].

    Parameters as in :func:`verify.reference.layers.linear.linear`; the output is judged as
    [rows, out].
    """

    operands: Operands = "as-stored"
    bias_place: BiasPlace = "before-store"

    name = "linear"
    inputs = ("x", "weight")
    optional = ("bias",)

    def enclosure(self, inputs: Inputs, store: str, arithmetic: Arithmetic) -> Enclosure:
        return linear_enclosure(
            inputs["x"],
            inputs["weight"],
            inputs.get("bias"),
            operands=self.operands,
            bias_place=self.bias_place,
            store=store,
            arithmetic=arithmetic,
        )

    def exact(self, inputs: Inputs) -> Array:
        product = linear(inputs["x"], inputs["weight"], inputs.get("bias"))
        return product.reshape(-1, product.shape[-1])

    def conventions(self, inputs: Inputs) -> Iterator[Variant]:
        for operands in OPERANDS:
            if operands != self.operands:
                yield Variant(f"operands={operands}", replace(self, operands=operands))
        place: BiasPlace = "after-store" if self.bias_place == "before-store" else "before-store"
        yield Variant(f"bias_place={place}", replace(self, bias_place=place))
        yield from self._on_tensor_cores(inputs)

    def _on_tensor_cores(self, inputs: Inputs) -> Iterator[Variant]:
        """Truncating accumulation drifts, which no order of rounded additions does. The tightest
        comes first; TF32 has the loosest, since its step is not published."""
        operands = [as_float64(inputs[name], name) for name in ("x", "weight")]
        for fmt in ("float16", "bfloat16"):
            if all((round_to(values, fmt) == values).all() for values in operands):
                least = get_format(fmt).min_exponent
                for name, core in (("H100, H200", H200), ("A100", A100), ("V100", V100)):
                    arithmetic = Arithmetic(replace(core, min_exponent=least))
                    yield Variant(f"accumulate=tensor core ({name})", self, arithmetic=arithmetic)
                return
        for kind in _TF32:
            arithmetic = Arithmetic(replace(V100, min_exponent=-126))
            name = f"operands={kind}, accumulate=tensor core"
            yield Variant(name, replace(self, operands=kind), arithmetic=arithmetic)

    def mistakes(self, inputs: Inputs) -> Iterator[Variant]:
        weight = as_float64(inputs["weight"], "weight")
        x = as_float64(inputs["x"], "x")
        if weight.shape[0] == weight.shape[1]:
            yield Variant("weight transposed", self, inputs={**inputs, "weight": weight.T})
        if inputs.get("bias") is not None:
            yield Variant("bias left out", self, inputs=without(inputs, "bias"))
        for lost in TRUNCATIONS:
            if lost < weight.shape[1]:
                cut = {**inputs, "x": x[..., :-lost], "weight": weight[:, :-lost]}
                yield Variant(f"last {lost} of K = {weight.shape[1]} left out", self, inputs=cut)
        for offset, name in ((1, "one ahead"), (-1, "one behind")):
            rolled = {**inputs, "weight": np.roll(weight, offset, axis=1)}
            yield Variant(f"input channels read {name}", self, inputs=rolled)
