"""A tiny model as engines hold one, and the keys that it attends to: plain, or in a paged cache.

All arithmetic is done row by row, so that a row has the same bits in every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

WIDTH, VOCABULARY, LAYERS, BLOCK = 8, 32, 2, 4


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.unsqueeze(-2) * self.weight).sum(-1)


class RMSNorm(nn.Module):
    """With a residual: adds it and norms in place, as fused kernels of engines do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(WIDTH))

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        if residual is None:
            return self._norm(x)
        residual += x
        x.copy_(self._norm(residual))
        return x, residual

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class Attention(nn.Module):
    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.qkv_proj = Linear(WIDTH, 3 * WIDTH)
        self.o_proj = Linear(WIDTH, WIDTH)

    def forward(self, positions: torch.Tensor, x: torch.Tensor, keys: Any) -> torch.Tensor:
        q, k, v = self.qkv_proj(x).chunk(3, -1)
        k = k + 0.1 * positions.unsqueeze(-1)  # stands for rotary embedding
        rows = [each.reshape(-1, WIDTH) for each in (q, k, v)]
        return self.o_proj(keys.attend(self.layer, *rows).view(x.shape))


class Block(nn.Module):
    def __init__(self, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm()
        self.self_attn = Attention(layer)
        self.post_attention_layernorm = RMSNorm()
        self.mlp = nn.Sequential(Linear(WIDTH, 16), nn.ReLU(), Linear(16, WIDTH))

    def forward(self, positions: Any, x: Any, residual: Any, keys: Any) -> Any:
        if residual is None:
            residual, x = x.clone(), self.input_layernorm(x)
        else:
            x, residual = self.input_layernorm(x, residual)
        x = self.self_attn(positions, x, keys)
        x, residual = self.post_attention_layernorm(x, residual)
        return self.mlp(x), residual


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        self.norm = RMSNorm()

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, keys: Any) -> torch.Tensor:
        x, residual = self.embed_tokens(ids), None
        for layer in self.layers:
            x, residual = layer(positions, x, residual, keys)
        return self.norm(x, residual)[0]


class TinyModel(nn.Module):
    """Called as vLLM calls its models; where keys come from is found in ``keys_of``."""

    def __init__(self, keys_of: Callable[[Any], Any], seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = Inner()
        self.lm_head = Linear(WIDTH, VOCABULARY)
        self.keys_of = keys_of

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Any = None,
    ) -> torch.Tensor:
        return self.model(input_ids, positions, self.keys_of(None))

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.lm_head(hidden)


class SglangModel(TinyModel):
    def forward(  # type: ignore[override]
        self, input_ids: torch.Tensor, positions: torch.Tensor, forward_batch: Any
    ) -> Any:
        hidden = self.model(input_ids, positions, self.keys_of(forward_batch))
        last = torch.tensor(np.cumsum(forward_batch.counts) - 1)
        return SimpleNamespace(next_token_logits=self.lm_head(hidden[last]), hidden_states=None)


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    weights = torch.softmax((keys * q).sum(-1), 0)
    return (weights[:, None] * values).sum(0)


class PlainKeys:
    """Keys of one sequence, of a run without an engine."""

    def __init__(self) -> None:
        self.held: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def attend(self, layer: int, q: Any, k: Any, v: Any) -> torch.Tensor:
        held, out = self.held.setdefault(layer, []), []
        for row in range(len(q)):
            held.append((k[row], v[row]))
            keys, values = (torch.stack(each) for each in zip(*held, strict=True))
            out.append(attend(q[row], keys, values))
        return torch.stack(out)


@dataclass
class PagedKeys:
    """A paged cache, and the metadata of the batch that is computed; None: a dummy run."""

    cache: torch.Tensor
    metadata: Any = None

    def attend(self, layer: int, q: Any, k: Any, v: Any) -> torch.Tensor:
        meta, out = self.metadata, torch.zeros_like(q)
        if meta is None:
            return out
        starts = meta.query_start_loc.tolist()
        for request in range(len(starts) - 1):
            table = meta.block_table[request]
            length = int(meta.seq_lens[request])
            for row in range(starts[request], starts[request + 1]):
                self.cache[layer, meta.slot_mapping[row]] = torch.stack([k[row], v[row]])
            slots = [int(table[at // BLOCK]) * BLOCK + at % BLOCK for at in range(length)]
            for row in range(starts[request], starts[request + 1]):
                seen = slots[: length - (starts[request + 1] - 1 - row)]
                held = self.cache[layer, seen]
                out[row] = attend(q[row], held[:, 0], held[:, 1])
        return out


def new_cache() -> torch.Tensor:
    return torch.zeros(LAYERS, 64 * BLOCK, 2, WIDTH)
