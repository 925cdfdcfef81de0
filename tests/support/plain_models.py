"""Small modules of no library, to be captured in tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

WIDTH, HEADS = 16, 2


class Attention(nn.Module):
    """Causal self-attention; ``cache`` (key, value) of earlier calls is extended and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, cache: Any = None) -> Any:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        out = scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return self.proj(out.transpose(1, 2).reshape(b, t, c)), (k, v)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: torch.Tensor, cache: Any = None) -> Any:
        attended, cache = self.attn(self.norm(x), cache)
        x = x + attended
        return x + self.mlp(x), cache


class TinyDecoder(nn.Module):
    """Embedding, two blocks, output layer: [b, t] ids to [b, t, 40] logits."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(40, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, 40)

    def forward(self, ids: torch.Tensor, caches: Any = None) -> Any:
        x = self.embed(ids)
        kept = []
        for block, cache in zip(self.layers, caches or [None, None], strict=True):
            x, cache = block(x, cache)
            kept.append(cache)
        return self.head(x), kept


class Steps(nn.Module):
    """Runs ``function`` on its input and the outputs of its layers: to plant what a test needs."""

    def __init__(self, function: Any, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)
