"""Which reference operation stands for a module, or for the step from some taps to another."""

from __future__ import annotations

from typing import Any

import torch

from verify.compare.elements import floating_values
from verify.formats import get_format
from verify.reference.certificates.elementwise import Activation, Embedding, Gated, ResidualAdd
from verify.reference.certificates.gemm import Linear
from verify.reference.certificates.layer_op import Inputs, LayerOp
from verify.reference.certificates.norm import LayerNorm, RmsNorm
from verify.reference.certificates.rotary import Rope
from verify.reference.layers.activations import Function
from verify.replay.cases import Case

_ACTIVATIONS: dict[str, Function] = {
    "SiLU": "silu",
    "SiLUActivation": "silu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu-tanh",
    "PytorchGELUTanh": "gelu-tanh",
    "NewGELUActivation": "gelu-tanh",
}


def module_op(case: Case) -> tuple[LayerOp, Inputs] | None:
    """The operation of the module that was called, and what it read."""
    module, x = case.module, case.x
    assert module is not None and x is not None
    weight = getattr(module, "weight", None)
    name = type(module).__name__
    if isinstance(module, torch.nn.Linear):
        return Linear(), _given(x=x, weight=weight, bias=module.bias)
    if isinstance(module, torch.nn.Embedding):
        scale = float(getattr(module, "scalar_embed_scale", 1.0))
        return Embedding(scale=scale), _given(ids=x.reshape(-1), table=weight)
    if isinstance(module, torch.nn.LayerNorm) and len(module.normalized_shape) == 1:
        return LayerNorm(eps=module.eps), _given(x=x, weight=weight, bias=module.bias)
    if "rmsnorm" in name.lower():
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if isinstance(eps, float):
            # Gemma multiplies by 1 + weight in FP32; Llama and its kin cast before the weight.
            offset = name.startswith("Gemma")
            op = RmsNorm(
                eps=eps, unit_offset=offset, cast="after-weight" if offset else "before-weight"
            )
            return op, _given(x=x, weight=weight)
    if isinstance(module, torch.nn.GELU):
        return Activation("gelu" if module.approximate == "none" else "gelu-tanh"), _given(x=x)
    if name in _ACTIVATIONS:
        return Activation(_ACTIVATIONS[name]), _given(x=x)
    return None


def segment_op(case: Case) -> tuple[LayerOp, Inputs] | None:
    """The operation between recorded taps, where its name and inputs leave no doubt."""
    ops = {op.partition("[")[0] for op in case.record.ops}
    values = {
        tap: floating_values(words, get_format(dtype))
        for tap, (words, dtype) in case.sources.items()
    }
    length = case.wanted.shape[1]
    same = [v for v in values.values() if v.shape[1] == length]
    if len(values) == 2 == len(same) and "aten.add" in ops and "aten.mul" not in ops:
        return ResidualAdd(), {"a": same[0], "b": same[1]}
    if len(values) == 2 == len(same) and {"aten.silu", "aten.mul"} <= ops:
        return Gated("silu"), {"gate": same[0], "up": same[1]}
    return _rope(case, values) if "aten.neg" in ops else None


def _rope(case: Case, values: dict[str, Any]) -> tuple[LayerOp, Inputs] | None:
    """A rotation reads one tensor with heads, and the tables of cosines and sines."""
    tables = [v for tap, v in sorted(values.items()) if "rotary" in tap]
    states = [v for tap, v in values.items() if "rotary" not in tap]
    if len(tables) != 2 or len(states) != 1 or states[0].shape[1] != case.wanted.shape[1]:
        return None
    rotated = tables[0].shape[1]
    if states[0].shape[1] % rotated:
        return None
    x = states[0].reshape(len(states[0]), -1, rotated)
    cos, sin = (table[:, None, : rotated // 2] for table in tables)
    return Rope(), {"x": x, "cos": cos, "sin": sin}


def _given(**inputs: torch.Tensor | None) -> dict[str, Any]:
    return {name: tensor.detach() for name, tensor in inputs.items() if tensor is not None}
