"""Faults of linear layers, norms, activations, rotations and caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from verify.selftest.fault import BROKEN, CONVENTION, Fault, Place
from verify.selftest.inject import changed_cache, changed_module, changed_rotation
from verify.selftest.sizes import Size, resized

Change = Callable[[Any, Any, Any, Place], Any]
"""(module, x, its output, place) -> the wrong output."""


def _layer(model: Any, place: Place) -> Any:
    return model.model.layers[place.layer]


def _in_module(path: str, change: Change, *, resize: bool = True) -> Any:
    @contextmanager
    def plant(model: Any, place: Place) -> Iterator[None]:
        module = _layer(model, place).get_submodule(path)

        def wrong(x: Any, out: Any) -> Any:
            made = change(module, x, out, place)
            return resized(out, made, place.size) if resize else made.to(out.dtype)

        with changed_module(module, wrong):
            yield

    return plant


def _transposed(module: Any, x: Any, out: Any, place: Place) -> Any:
    import torch

    return torch.nn.functional.linear(x, module.weight.T)


def _zero_point(module: Any, x: Any, out: Any, place: Place) -> Any:
    """Every weight off by one step of an int4 grid: adds scale * sum(x) to each output."""
    scale = module.weight.abs().amax() / 7
    return out + scale * x.sum(dim=-1, keepdim=True)


def _rows_regrouped(module: Any, x: Any, out: Any, place: Place) -> Any:
    """A fused matrix read as interleaved where it is concatenated: outputs in another order."""
    half = out.shape[-1] // 2
    return out.unflatten(-1, (2, half)).transpose(-1, -2).flatten(-2)


def _unwritten(module: Any, x: Any, out: Any, place: Place) -> Any:
    wrong = out.clone()
    wrong[:, -1] = 0.0
    return wrong


def _tf32(module: Any, x: Any, out: Any, place: Place) -> Any:
    """Both operands rounded to the 11 bits of TF32."""
    import torch

    return torch.nn.functional.linear(_to_tf32(x), _to_tf32(module.weight), module.bias)


def _to_tf32(tensor: Any) -> Any:
    import torch

    words = tensor.float().view(torch.int32)
    even = (words >> 13) & 1
    return ((words + 0xFFF + even) & ~0x1FFF).view(torch.float32)


def _overflow(module: Any, x: Any, out: Any, place: Place) -> Any:
    return out * 9e4


def _normalised(module: Any, x: Any) -> Any:
    wide = x.float()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + module.variance_epsilon).sqrt()


def _eps_outside(module: Any, x: Any, out: Any, place: Place) -> Any:
    import torch

    wide = x.float()
    root = wide.pow(2).mean(-1, keepdim=True).sqrt() + 1e-2
    return module.weight * (wide / root).to(torch.float32)


def _one_added(module: Any, x: Any, out: Any, place: Place) -> Any:
    """Gemma's 1 + w on weights that hold the one already."""
    return out.float() + _normalised(module, x)


def _norm_missing(module: Any, x: Any, out: Any, place: Place) -> Any:
    return module.weight * x


def _cast_after_weight(module: Any, x: Any, out: Any, place: Place) -> Any:
    return module.weight.float() * _normalised(module, x)


def _quick_gelu(module: Any, x: Any, out: Any, place: Place) -> Any:
    import torch

    return x * torch.sigmoid(1.702 * x)


@contextmanager
def _swapped_gate_and_up(model: Any, place: Place) -> Iterator[None]:
    import torch

    mlp = _layer(model, place).mlp
    pairs = ((mlp.gate_proj, mlp.up_proj), (mlp.up_proj, mlp.gate_proj))
    with ExitStack() as stack:
        for module, other in pairs:

            def wrong(x: Any, out: Any, weight: Any = other.weight) -> Any:
                return resized(out, torch.nn.functional.linear(x, weight), place.size)

            stack.enter_context(changed_module(module, wrong))
        yield


def _rotated(change: Callable[[Any], Any]) -> Any:
    """One layer rotates by a changed table: the change is applied to cos and to sin."""

    @contextmanager
    def plant(model: Any, place: Place) -> Iterator[None]:
        def table(cos: Any, sin: Any) -> tuple[Any, Any]:
            return (
                resized(cos, change(cos), place.size),
                resized(sin, change(sin), place.size),
            )

        with changed_rotation(_layer(model, place).self_attn, table):
            yield

    return plant


def _late_position(table: Any) -> Any:
    """Every position reads the table one row early, but for the first."""
    import torch

    if table.shape[1] == 1:
        return table.roll(1, dims=-1)
    return torch.cat([table[:, :1], table[:, :-1]], dim=1)


def _interleaved(table: Any) -> Any:
    """The pairs of a head taken as neighbours in place of halves."""
    half = table.shape[-1] // 2
    return table[..., :half].repeat_interleave(2, dim=-1)


def _read_from_cache(
    change: Callable[[Any, Place], Any], *, keys: bool, resize: bool = True
) -> Any:
    @contextmanager
    def plant(model: Any, place: Place) -> Iterator[None]:
        def read(k: Any, v: Any) -> tuple[Any, Any]:
            old = k if keys else v
            new = change(old, place)
            if resize:
                new = resized(old, new, place.size)
            return (new, v) if keys else (k, new)

        with changed_cache({place.layer}, read):
            yield

    return plant


def _scaled(tensor: Any, place: Place) -> Any:
    return tensor * 1.5


def _halved_group(tensor: Any, place: Place) -> Any:
    wrong = tensor.clone()
    wrong[:, place.head] *= 0.5
    return wrong


def _heads_swapped(tensor: Any, place: Place) -> Any:
    return tensor.roll(1, dims=1)


def _stale_page(tensor: Any, place: Place) -> Any:
    """A gather that reads the slot before the newest in its stead, in all heads or in one."""
    import torch

    last = tensor[:, :, -2:-1] if tensor.shape[2] > 1 else tensor
    stale = torch.cat([tensor[:, :, :-1], last], dim=2)
    if place.size is Size.GROSS:
        return stale
    head = place.head
    return torch.cat([tensor[:, :head], stale[:, head : head + 1], tensor[:, head + 1 :]], dim=1)


_READ_K, _READ_V = ("self_attn.attn.in.k",), ("self_attn.attn.in.v",)
_ROTATED = ("self_attn.attn.in.q", "self_attn.cache.in.k", "self_attn.attn.in.k")
_LN1, _LN2 = "input_layernorm", "post_attention_layernorm"
_GROSS = (Size.GROSS,)

MODULE_FAULTS = (
    Fault("K03", "norm casts after the weight", _in_module(_LN1, _cast_after_weight, resize=False),
          (f"{_LN1}.out",), CONVENTION, "bf16", _GROSS),
    Fault("K03", "operands rounded to TF32", _in_module("mlp.down_proj", _tf32, resize=False),
          ("mlp.down_proj.out",), CONVENTION, "fp32", _GROSS),
    Fault("K03", "another activation", _in_module("mlp.act_fn", _quick_gelu),
          ("mlp.act_fn.out",)),
    Fault("K05", "key scale on keys that have none", _read_from_cache(_scaled, keys=True), _READ_K),
    Fault("K06", "values of one head as FNUZ", _read_from_cache(_halved_group, keys=False), _READ_V),
    Fault("K11", "rope table one row early", _rotated(_late_position), _ROTATED),
    Fault("K12", "rope pairs interleaved", _rotated(_interleaved), _ROTATED),
    Fault("K12", "output projection transposed", _in_module("self_attn.o_proj", _transposed),
          ("self_attn.o_proj.out",)),
    Fault("K12", "query rows regrouped", _in_module("self_attn.q_proj", _rows_regrouped),
          ("self_attn.q_proj.out",)),
    Fault("K12", "gate and up swapped", _swapped_gate_and_up,
          ("mlp.gate_proj.out", "mlp.up_proj.out")),
    Fault("K12", "key heads in another order", _read_from_cache(_heads_swapped, keys=True), _READ_K),
    Fault("K13", "eps outside the root", _in_module(_LN1, _eps_outside), (f"{_LN1}.out",)),
    Fault("K13", "one added twice", _in_module(_LN2, _one_added), (f"{_LN2}.out",)),
    Fault("K13", "norm missing", _in_module(_LN1, _norm_missing), (f"{_LN1}.out",)),
    Fault("K14", "overflow of the down projection", _in_module("mlp.down_proj", _overflow),
          ("mlp.down_proj.out",), BROKEN, "fp16", _GROSS),
    Fault("K15", "stale key", _read_from_cache(_stale_page, keys=True, resize=False), _READ_K,
          sizes=(Size.GROSS, Size.MODERATE)),
    Fault("K15", "output row not written", _in_module("self_attn.o_proj", _unwritten),
          ("self_attn.o_proj.out",)),
    Fault("K21", "zero point off by one", _in_module("mlp.up_proj", _zero_point),
          ("mlp.up_proj.out",)),
)  # fmt: skip
