"""What an attention kernel declares about its own arithmetic; references judge it by this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verify.errors import ArgumentError
from verify.reference.attention.inputs import AttentionInputs
from verify.reference.tensor_core import ARCHITECTURES, Unit, get_unit

PREFIX_TAIL = "prefix_tail"
"""Two parts: the keys before the first query, and the causal square behind."""

_FORMATS = ("float16", "bfloat16", "float32")


@dataclass(frozen=True, slots=True)
class Chain:
    """How a dot product is accumulated over k ascending.

    Args:
        kind: ``tensor_core`` (see ``verify.reference.tensor_core``) or ``fma``: one FP32 fused
            multiply-add a term, to nearest even.
        architecture, instruction: of the tensor core.
        output: format of the accumulator; ``float16`` on tensor cores only.
    """

    kind: Literal["tensor_core", "fma"]
    architecture: str = ""
    instruction: str = "m16n16k16"
    output: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        if self.kind == "tensor_core":
            self.unit("float16")  # refuses what does not exist
        elif self.kind != "fma" or self.output != "float32":
            raise ArgumentError(
                "no such accumulation", where="chain", found=f"{self.kind} to {self.output}",
                allowed="tensor_core to float32 or float16, or fma to float32",
            )  # fmt: skip

    def unit(self, operands: Literal["float16", "bfloat16"]) -> Unit:
        """The tensor core's arithmetic; only for ``tensor_core``."""
        return get_unit(self.architecture, self.instruction, operands=operands, output=self.output)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Every rounding of one attention kernel, in its order.

    Scores are natural log: ``x = fl32(s * fl32(scale * k_scale))`` from the score chain's s;
    ``p = ex2(fl32(fl32(x - m) * log2 e))``. State is FP32: ``l = fl(fl(l * alpha) + tile sum)``.

    Args:
        name: how reports call it.
        score_chain, value_chain: accumulation of Q K^T and of P V.
        tile: keys of one block of probabilities.
        step: keys of one online-softmax step; a multiple of ``tile``; ``tile`` if None.
        base: the maximum that P is relative to when it is rounded: ``running`` (of all steps so
            far), ``step`` (of this step alone, merged afterwards), or ``unknown``.
        accumulate: ``chain``: the accumulator is the C operand of the product; ``blocks``: each
            step's product starts from zero and is added in FP32.
        probability: format of P as operand of P V.
        roundings: 2 if P is rounded relative to the tile's maximum, rescaled to the base and
            rounded again.
        parts: 2 if P is carried as high + low, two products into one accumulator.
        mass: ``rounded``: l sums P as rounded; ``unrounded``: l sums the FP32 p.
        partition: keys of one part with a state of its own, merged in ascending order;
            ``"prefix_tail"``; or None for a single part.
        scale_fold: a quantised cache's scales: ``after`` the products, in FP32; or ``before``:
            ``fp16(fl32(code * scale))`` enters them.
        exp_error: largest relative error of ex2. 2.5 * 2^-23: within 2 ulp of the correctly rounded
            result (PTX ISA 9.1, ex2.approx.f32), half an ulp for that rounding; documented, not
            proven.
        output: format of the result; rounded once, to nearest even.

    Raises:
        ArgumentError: a value outside its choices, or combinations that mean nothing.
    """

    name: str
    score_chain: Chain
    value_chain: Chain
    tile: int = 64
    step: int | None = None
    base: Literal["running", "step", "unknown"] = "running"
    accumulate: Literal["chain", "blocks"] = "chain"
    probability: Literal["float16", "bfloat16", "float32"] = "float16"
    roundings: Literal[1, 2] = 1
    parts: Literal[1, 2] = 1
    mass: Literal["rounded", "unrounded"] = "rounded"
    partition: int | Literal["prefix_tail"] | None = None
    scale_fold: Literal["after", "before"] = "after"
    exp_error: float = 2.5 * 2.0**-23
    output: Literal["float16", "bfloat16", "float32"] = "float16"

    def __post_init__(self) -> None:
        whole = isinstance(self.partition, int)
        fp32_p = self.probability == "float32"
        rules: list[tuple[bool, str, object, str]] = [
            (self.tile >= 16 and self.tile % 16 == 0, "tile", self.tile, "a multiple of 16"),
            (self.keys_per_step % self.tile == 0, "step", self.step, "a multiple of tile"),
            (self.base in ("running", "step", "unknown"), "base", self.base, "see Arithmetic"),
            (self.base != "step" or self.accumulate == "blocks", "accumulate", self.accumulate,
             "blocks, where P is relative to the step's own maximum"),
            (self.accumulate in ("chain", "blocks"), "accumulate", self.accumulate,
             "chain or blocks"),
            (self.probability in _FORMATS, "probability", self.probability, f"{_FORMATS}"),
            (self.output in _FORMATS, "output", self.output, f"{_FORMATS}"),
            (self.roundings in (1, 2), "roundings", self.roundings, "1 or 2"),
            (self.parts == 1 or (self.parts == 2 and not fp32_p and self.roundings == 1), "parts",
             self.parts, "1, or 2 with a 16-bit P that is rounded once"),
            (self.mass in ("rounded", "unrounded"), "mass", self.mass, "rounded or unrounded"),
            (not fp32_p or self.value_chain.kind == "fma", "probability", self.probability,
             "16 bits on a tensor core"),
            (self.scale_fold in ("after", "before"), "scale_fold", self.scale_fold,
             "after or before"),
            (self.partition in (None, PREFIX_TAIL) or (whole and self.partition_keys >= 1),
             "partition", self.partition, "an integer >= 1, 'prefix_tail' or None"),
            (0 <= self.exp_error < 2.0**-10, "exp_error", self.exp_error, "0..2^-10"),
        ]  # fmt: skip
        for holds, field, found, allowed in rules:
            if not holds:
                raise ArgumentError(
                    "an arithmetic that no kernel can have", where=f"{self.name}.{field}",
                    found=found, allowed=allowed,
                )  # fmt: skip

    @property
    def keys_per_step(self) -> int:
        return self.tile if self.step is None else self.step

    @property
    def partition_keys(self) -> int:
        return self.partition if isinstance(self.partition, int) else 0

    @property
    def operands(self) -> Literal["float16", "bfloat16"]:
        """Format of the 16-bit operands of the chains."""
        return "bfloat16" if self.probability == "bfloat16" else "float16"

    def ranges(self, inputs: AttentionInputs) -> list[tuple[int, int]]:
        """Key ranges of the parts, ascending, over the whole cache."""
        keys = inputs.k.shape[1]
        if self.partition == PREFIX_TAIL:
            seam = max(0, keys - inputs.q.shape[1])
            return [part for part in ((0, seam), (seam, keys)) if part[0] < part[1]]
        size = self.partition_keys or keys
        return [(start, min(start + size, keys)) for start in range(0, keys, size)]


def tensor_core_prefill(architecture: str, **changes: object) -> Arithmetic:
    """One pass on tensor cores: 64-key P V blocks added in FP32, FP16 P, rounded mass.

    ``changes`` replace fields of ``Arithmetic``.
    """
    chain = Chain("tensor_core", architecture)
    fields: dict[str, object] = {
        "name": f"prefill {architecture}", "score_chain": chain, "value_chain": chain,
        "accumulate": "blocks",
    }  # fmt: skip
    return Arithmetic(**(fields | changes))  # type: ignore[arg-type]


def prefix_rounded_twice(architecture: str, **changes: object) -> Arithmetic:
    """The older prefix: blocks of 8192 keys in one chain, P rounded relative to the maximum of its
    64-key tile and again relative to the block's, rounded mass, states merged in FP32."""
    chain = Chain("tensor_core", architecture)
    fields: dict[str, object] = {
        "name": f"prefix rounded twice {architecture}", "score_chain": chain,
        "value_chain": chain, "step": 8192, "base": "step", "accumulate": "blocks",
        "roundings": 2,
    }  # fmt: skip
    return Arithmetic(**(fields | changes))  # type: ignore[arg-type]


def wave_decode(partition: int, **changes: object) -> Arithmetic:
    """Split-KV decode: FP32 fused multiply-adds, FP32 p, unrounded mass, FP32 partial states."""
    chain = Chain("fma")
    fields: dict[str, object] = {
        "name": f"decode in parts of {partition}", "score_chain": chain, "value_chain": chain,
        "probability": "float32", "mass": "unrounded", "partition": partition,
    }  # fmt: skip
    return Arithmetic(**(fields | changes))  # type: ignore[arg-type]


__all__ = [
    "ARCHITECTURES",
    "PREFIX_TAIL",
    "Arithmetic",
    "Chain",
    "prefix_rounded_twice",
    "tensor_core_prefill",
    "wave_decode",
]
