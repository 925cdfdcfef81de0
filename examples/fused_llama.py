"""A Llama as serving engines write it, and both forms captured: an example for tap maps.

    python examples/fused_llama.py          # writes runs/transformers, runs/fused and runs/faulty
    verify taps runs/transformers runs/fused --out fused.toml
    verify bisect runs/transformers runs/faulty --map fused.toml

Projections are fused, and the residual stream is passed beside the hidden states and added inside
the norm. The model takes the weights of a transformers LlamaForCausalLM. ``Names`` gives its modules
the names of vLLM, or names of no library; ``Fault`` plants one fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from verify.dumps import capture
from verify.dumps.format.schema import Sequence, Workload


@dataclass(frozen=True)
class Names:
    model: str = "model"
    embed: str = "embed_tokens"
    layers: str = "layers"
    norm_1: str = "input_layernorm"
    attention: str = "self_attn"
    qkv: str = "qkv_proj"
    rope: str = "rotary_emb"
    core: str = "attn"
    out: str = "o_proj"
    norm_2: str = "post_attention_layernorm"
    mlp: str = "mlp"
    gate_up: str = "gate_up_proj"
    act: str = "act_fn"
    down: str = "down_proj"
    norm: str = "norm"
    head: str = "lm_head"


VLLM = Names()
OTHER = Names(
    "decoder", "wte", "blocks", "norm_a", "mixer", "wqkv", "turn", "core", "wo", "norm_b", "ffn",
    "w13", "glu", "w2", "norm_f", "head",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and in which layer."""

    kind: str
    layer: int


@dataclass
class Settings:
    config: Any
    names: Names = field(default_factory=Names)
    interleaved: bool = False
    """Rotary embedding turns neighbouring channels; the rows of q and k are permuted to fit."""
    fault: Fault | None = None

    def has(self, kind: str, layer: int) -> bool:
        return self.fault == Fault(kind, layer)


class FusedLinear(nn.Linear):
    """A linear layer of several outputs side by side."""

    def __init__(self, inputs: int, output_sizes: list[int]) -> None:
        super().__init__(inputs, sum(output_sizes), bias=False)
        self.output_sizes = output_sizes


class AddNorm(nn.Module):
    """RMSNorm of x, or of x + residual, which it returns as well; computed in float32."""

    def __init__(self, width: int, eps: float, doubled: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.doubled = eps, doubled

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        y = x.float()
        for _ in range(0 if residual is None else 1 + self.doubled):
            y = y + residual.float()
        kept = y.to(x.dtype)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        y = y.to(x.dtype) * self.weight
        return y if residual is None else (y, kept)


class Rotary(nn.Module):
    """Rotary embedding of q and k [b, t, heads * dim] by a table of cosines and sines."""

    def __init__(self, dim: int, base: float, positions: int, interleaved: bool) -> None:
        super().__init__()
        turns = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim)
        angles = torch.outer(torch.arange(positions).float(), turns)
        self.register_buffer("cos_sin_cache", torch.cat([angles.cos(), angles.sin()], -1))
        self.dim, self.interleaved = dim, interleaved

    def forward(self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> Any:
        cos, sin = self.cos_sin_cache[positions].to(q.dtype).chunk(2, -1)
        return self.turn(q, cos, sin), self.turn(k, cos, sin)

    def turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (-1, self.dim))
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
        if self.interleaved:
            first, second = heads[..., ::2], heads[..., 1::2]
            turned = [first * cos - second * sin, second * cos + first * sin]
            return torch.stack(turned, -1).flatten(-3)
        first, second = heads.chunk(2, -1)
        turned = [first * cos - second * sin, second * cos + first * sin]
        return torch.cat(turned, -1).flatten(-2)


class Core(nn.Module):
    """Causal attention over a cache of its own."""

    def __init__(self, dim: int, scale: float) -> None:
        super().__init__()
        self.dim, self.scale = dim, scale
        self.cache: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.unflatten(-1, (-1, self.dim)).transpose(1, 2) for x in (q, k, v))
        if self.cache is not None:
            k, v = (torch.cat(pair, 2) for pair in zip(self.cache, (k, v), strict=True))
        self.cache = (k, v)
        out = scaled_dot_product_attention(
            q, k, v, is_causal=q.shape[2] > 1, scale=self.scale, enable_gqa=True
        )
        return out.transpose(1, 2).flatten(-2)


class Attention(nn.Module):
    def __init__(self, settings: Settings, layer: int) -> None:
        super().__init__()
        c, self.names = settings.config, settings.names
        dim = c.head_dim
        sizes = [c.num_attention_heads * dim, *2 * [c.num_key_value_heads * dim]]
        self.sizes = sizes
        self.add_module(self.names.qkv, FusedLinear(c.hidden_size, sizes))
        base = c.rope_parameters["rope_theta"] * (1 + settings.has("rope base", layer))
        self.add_module(
            self.names.rope, Rotary(dim, base, c.max_position_embeddings, settings.interleaved)
        )
        scale = dim**-0.5 * (1.2 if settings.has("attention scale", layer) else 1.0)
        self.add_module(self.names.core, Core(dim, scale))
        self.add_module(self.names.out, nn.Linear(sizes[0], c.hidden_size, bias=False))
        self.swapped = settings.has("heads of v exchanged", layer)

    def forward(self, positions: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        part = self.get_submodule
        q, k, v = part(self.names.qkv)(x).split(self.sizes, -1)
        if self.swapped:
            v = v.roll(v.shape[-1] // 2, -1)
        q, k = part(self.names.rope)(positions, q, k)
        return part(self.names.out)(part(self.names.core)(q, k, v))


class Glu(nn.Module):
    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut = cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        if self.cut:
            gate = gate.clamp(max=0.02)
        return silu(gate) * up


class Mlp(nn.Module):
    def __init__(self, settings: Settings, layer: int) -> None:
        super().__init__()
        c, self.names = settings.config, settings.names
        self.add_module(self.names.gate_up, FusedLinear(c.hidden_size, 2 * [c.intermediate_size]))
        self.add_module(self.names.act, Glu(settings.has("gate cut off", layer)))
        self.add_module(self.names.down, nn.Linear(c.intermediate_size, c.hidden_size, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        part = self.get_submodule
        return part(self.names.down)(part(self.names.act)(part(self.names.gate_up)(x)))


class Layer(nn.Module):
    def __init__(self, settings: Settings, layer: int) -> None:
        super().__init__()
        c, self.names = settings.config, settings.names
        for name, fault in (
            (self.names.norm_1, "residual doubled"),
            (self.names.norm_2, "residual doubled after attention"),
        ):
            doubled = settings.has(fault, layer)
            self.add_module(name, AddNorm(c.hidden_size, c.rms_norm_eps, doubled))
        self.add_module(self.names.attention, Attention(settings, layer))
        self.add_module(self.names.mlp, Mlp(settings, layer))

    def forward(
        self, positions: torch.Tensor, x: torch.Tensor, residual: torch.Tensor | None
    ) -> Any:
        part = self.get_submodule
        if residual is None:
            residual = x
            x = part(self.names.norm_1)(x)
        else:
            x, residual = part(self.names.norm_1)(x, residual)
        x = part(self.names.attention)(positions, x)
        x, residual = part(self.names.norm_2)(x, residual)
        return part(self.names.mlp)(x), residual


class Body(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        c, self.names = settings.config, settings.names
        self.add_module(self.names.embed, nn.Embedding(c.vocab_size, c.hidden_size))
        layers = [Layer(settings, layer) for layer in range(c.num_hidden_layers)]
        self.add_module(self.names.layers, nn.ModuleList(layers))
        self.add_module(self.names.norm, AddNorm(c.hidden_size, c.rms_norm_eps, False))

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x, residual = self.get_submodule(self.names.embed)(ids), None
        for layer in self.get_submodule(self.names.layers).children():
            x, residual = layer(positions, x, residual)
        return self.get_submodule(self.names.norm)(x, residual)[0]


class FusedLlama(nn.Module):
    """[b, t] ids and positions to [b, t, vocabulary] logits."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        c, self.names = settings.config, settings.names
        self.config = c
        self.add_module(self.names.model, Body(settings))
        self.add_module(self.names.head, nn.Linear(c.hidden_size, c.vocab_size, bias=False))

    def get_output_embeddings(self) -> nn.Module:
        return self.get_submodule(self.names.head)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.get_submodule(self.names.model)(ids, positions)
        return self.get_submodule(self.names.head)(x)


def fused_like(model: nn.Module, names: Names = VLLM, **settings: Any) -> FusedLlama:
    """The fused form of a transformers Llama, with its weights and dtype."""
    made = FusedLlama(Settings(model.config, names, **settings)).eval()
    theirs, n = dict(model.named_parameters()), names
    with torch.no_grad():
        put = _Put(made, theirs)
        put(f"{n.model}.{n.embed}", "model.embed_tokens")
        put(f"{n.model}.{n.norm}", "model.norm")
        put(n.head, "lm_head" if "lm_head.weight" in theirs else "model.embed_tokens")
        for layer in range(model.config.num_hidden_layers):
            a, b = f"model.layers.{layer}", f"{n.model}.{n.layers}.{layer}"
            put(f"{b}.{n.norm_1}", f"{a}.input_layernorm")
            put(f"{b}.{n.norm_2}", f"{a}.post_attention_layernorm")
            qkv = [f"{a}.self_attn.{name}_proj" for name in "qkv"]
            turned = model.config.head_dim if settings.get("interleaved") else 0
            put(f"{b}.{n.attention}.{n.qkv}", *qkv, turned=turned)
            put(f"{b}.{n.attention}.{n.out}", f"{a}.self_attn.o_proj")
            put(f"{b}.{n.mlp}.{n.gate_up}", f"{a}.mlp.gate_proj", f"{a}.mlp.up_proj")
            put(f"{b}.{n.mlp}.{n.down}", f"{a}.mlp.down_proj")
    dtype = next(model.parameters()).dtype
    tables = {name: buffer.clone() for name, buffer in made.named_buffers()}
    made = made.to(dtype)
    for name, table in tables.items():  # as engines do: the table stays in float32
        made.get_submodule(name.rpartition(".")[0]).cos_sin_cache = table
    return made


class _Put:
    def __init__(self, made: nn.Module, theirs: dict[str, torch.Tensor]) -> None:
        self.made, self.theirs = made, theirs

    def __call__(self, name: str, *sources: str, turned: int = 0) -> None:
        weights = [self.theirs[f"{source}.weight"].float() for source in sources]
        if turned:
            weights[:2] = [interleave(weight, turned) for weight in weights[:2]]
        self.made.get_submodule(name).weight.copy_(torch.cat(weights))


def interleave(weight: torch.Tensor, dim: int) -> torch.Tensor:
    """Rows of a projection so that the two channels of a pair become neighbours, as llama.cpp's
    converter orders them."""
    heads = weight.unflatten(0, (-1, 2, dim // 2))
    return heads.transpose(1, 2).flatten(0, 2)


TAPS = ["default", "*.in.0", "*.in.1", "*.out", "*.out.1"]
"""What is captured of the fused form: the second input and output of a norm are the stream."""


def small_llama(dtype: torch.dtype = torch.float32, layers: int = 3, seed: int = 0) -> nn.Module:
    """A transformers Llama of random weights, those of the norms included."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=80,
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.15,  # large enough for layers to differ from each other
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.2 * torch.randn_like(weight))
    return model.to(dtype)


def main(folder: Path) -> None:
    """Capture one prompt through the transformers model, its fused form, and one with a fault."""
    ids = torch.randint(0, 80, (1, 12), generator=torch.Generator().manual_seed(7))
    places = torch.arange(12)[None]
    model = small_llama()
    fault = Fault("attention scale", 1)
    for name, form in (
        ("transformers", model),
        ("fused", fused_like(model, OTHER)),
        ("faulty", fused_like(model, OTHER, fault=fault)),
    ):
        fused = isinstance(form, FusedLlama)
        workload = Workload(sequences=[Sequence(id="text", prompt=ids[0].tolist(), generated=[])])
        options = {"workload": workload, "taps": TAPS if fused else None}
        with (
            torch.no_grad(),
            capture(form, folder / name, **options) as run,
            run.step(positions=places, sequences=["text"]),
        ):
            form(ids, places) if fused else form(input_ids=ids, position_ids=places)


if __name__ == "__main__":
    main(Path("runs"))
