"""A tensor-parallel toy, captured on one process and on several, and compared.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py runs/two
    python examples/tensor_parallel.py runs/one --weights runs/weights.safetensors
    verify bisect runs/one runs/two --weights runs/weights.safetensors

Column, row and vocabulary parallel layers over gloo; the weights are those of one seed, cut by rank.
`--fault scale|bias|partial|reduce --fault-rank R` plants a defect on one rank.
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from verify.dumps import capture

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS, STEPS = 96, 64, 4, 2, 12, 3

TAPS = ["default", "*.reduce.out", "reduce.out", "embed.out", "head.out"]
# What each rank holds of a tensor; the first glob that matches counts.
LAYOUTS = {
    "embed.out": "partial",
    "*.q_proj.out": "shard:-1",
    "*.k_proj.out": "shard:-1",
    "*.v_proj.out": "shard:-1",
    "*.attn.attn.in.mask": "replicated",
    "*.attn.attn.in.*": "shard:1",
    "*.attn.attn.out": "shard:1",
    "*.o_proj.out": "partial",
    "*.up_proj.out": "shard:-1",
    "*.act.out": "shard:-1",
    "*.down_proj.in.0": "shard:-1",
    "*.down_proj.out": "partial",
    "head.out": "shard:-1",
    "*": "replicated",
}


class Reduce(nn.Module):
    """The sum over the ranks."""

    def forward(self, x: Tensor) -> Tensor:
        if not dist.is_initialized():
            return x
        total = x.clone()
        dist.all_reduce(total)
        return total


class Attention(nn.Module):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.heads = HEADS // ranks
        self.q_proj = nn.Linear(WIDTH, WIDTH // ranks)
        self.k_proj = nn.Linear(WIDTH, WIDTH // ranks)
        self.v_proj = nn.Linear(WIDTH, WIDTH // ranks)
        self.o_proj = nn.Linear(WIDTH // ranks, WIDTH, bias=False)
        self.reduce = Reduce()

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            proj(x).view(b, t, self.heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.reduce(self.o_proj(out.transpose(1, 2).reshape(b, t, -1)))


class Mlp(nn.Module):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(WIDTH, 4 * WIDTH // ranks)
        self.act = nn.GELU()
        self.down_proj = nn.Linear(4 * WIDTH // ranks, WIDTH, bias=False)
        self.reduce = Reduce()

    def forward(self, x: Tensor) -> Tensor:
        return self.reduce(self.down_proj(self.act(self.up_proj(x))))


class Layer(nn.Module):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(WIDTH), Attention(ranks)
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), Mlp(ranks)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x))
        return x + self.mlp(self.norm2(x))


class Embed(nn.Module):
    """Rows of the vocabulary that this rank holds; zero for the others."""

    def __init__(self, ranks: int, rank: int) -> None:
        super().__init__()
        self.first = rank * (VOCABULARY // ranks)
        self.weight = nn.Parameter(torch.empty(VOCABULARY // ranks, WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        mine = ids - self.first
        held = (mine >= 0) & (mine < len(self.weight))
        return F.embedding(mine.clamp(0, len(self.weight) - 1), self.weight) * held[..., None]


class Config:
    """What the dump says of the model."""

    def to_dict(self) -> dict[str, float]:
        return {"layer_norm_eps": 1e-5}


class Model(nn.Module):
    def __init__(self, ranks: int = 1, rank: int = 0) -> None:
        super().__init__()
        self.config = Config()
        self.embed, self.reduce = Embed(ranks, rank), Reduce()
        self.layers = nn.ModuleList([Layer(ranks) for _ in range(LAYERS)])
        self.norm, self.head = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, VOCABULARY // ranks, bias=False),
        )

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.reduce(self.embed(input_ids))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


# Which dimension of a weight the ranks divide; all others are whole on every rank.
CUT = {
    "embed.weight": 0, "head.weight": 0, "q_proj.weight": 0, "q_proj.bias": 0, "k_proj.weight": 0,
    "k_proj.bias": 0, "v_proj.weight": 0, "v_proj.bias": 0, "up_proj.weight": 0, "up_proj.bias": 0,
    "o_proj.weight": 1, "down_proj.weight": 1,
}  # fmt: skip


def make(ranks: int = 1, rank: int = 0) -> Model:
    """The model of one rank: the weights of one seed, cut."""
    generator = torch.Generator().manual_seed(0)
    model = Model(ranks, rank)
    with torch.no_grad():
        for name, whole in Model().named_parameters():
            value = torch.empty_like(whole)
            value.normal_(0.0, 0.3 if whole.ndim > 1 else 0.1, generator=generator)
            if name.endswith(("norm.weight", "norm2.weight")):
                value += 1.0
            dim = next((d for end, d in CUT.items() if name.endswith(end)), None)
            mine = value if dim is None else value.chunk(ranks, dim)[rank]
            model.get_parameter(name).copy_(mine)
    return model.eval()


def plant(model: Model, fault: str) -> None:
    """A defect of this rank alone, in the second layer."""
    layer = model.layers[1]
    if fault == "scale":  # 3 % too large where values enter the output projection
        layer.attn.v_proj.register_forward_hook(lambda m, a, out: out * 1.03)
    elif fault == "bias":  # a bias that was not loaded
        layer.mlp.up_proj.bias.data.zero_()
    elif fault == "partial":  # a part of the sum is 3 % too large
        layer.mlp.down_proj.register_forward_hook(lambda m, a, out: out * 1.03)
    elif fault == "reduce":  # the sum is formed, and its result not used
        layer.mlp.reduce.register_forward_hook(lambda m, a, out: a[0].clone())


def run(path: str | Path, ranks: int, rank: int, fault: str = "", fault_rank: int = 0) -> None:
    model = make(ranks, rank)
    if fault and rank == fault_rank:
        plant(model, fault)
    ids = torch.arange(STEPS * TOKENS).view(STEPS, TOKENS) * 7 % VOCABULARY
    with torch.no_grad(), capture(model, path, taps=TAPS, layouts=LAYOUTS) as recorded:
        for number, row in enumerate(ids):
            with recorded.step(positions=[range(TOKENS)], sequences=[f"text {number}"]):
                model(row[None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--weights", help="also write the weights of the whole model here")
    parser.add_argument("--fault", default="", choices=["", "scale", "bias", "partial", "reduce"])
    parser.add_argument("--fault-rank", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if ranks > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    if given.weights and rank == 0:
        save_file(make().state_dict(), given.weights)
    run(given.out, ranks, rank, given.fault, given.fault_rank)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
