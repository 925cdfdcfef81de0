"""The defect that the demo plants: in one layer, one group of query heads misses the newest key.

It is the off-by-one of a causal mask, in one kernel launch out of many: the text stays fluent, and
no shape, dtype or NaN gives it away.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

IMPLEMENTATION = "sdpa"


@dataclass(frozen=True, slots=True)
class Defect:
    """Where the defect sits: decoder layer and key/value head, both counted from 0."""

    layer: int
    kv_head: int

    def describe(self, group: int) -> str:
        """One sentence; ``group`` is the number of query heads that share a key/value head."""
        first = self.kv_head * group
        heads = f"query heads {first} to {first + group - 1}" if group > 1 else f"head {first}"
        return f"in layer {self.layer}, {heads} did not see the newest key (an off-by-one mask)"


def choose(config: Any, seed: int) -> Defect:
    """Draw a place for the defect from ``seed``; ``config`` is a Hugging Face model config."""
    draw = random.Random(seed)
    # Not the outermost layers: the point is a defect with innocent layers on both sides.
    layer = draw.randrange(1, config.num_hidden_layers - 1)
    return Defect(layer, draw.randrange(config.num_key_value_heads))


@contextmanager
def planted(defect: Defect) -> Iterator[None]:
    """Route Hugging Face's SDPA attention through the defect while the context is open."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    sound = registry[IMPLEMENTATION]

    def faulty(module: Any, q: Any, k: Any, v: Any, mask: Any, **kwargs: Any) -> Any:
        out, weights = sound(module, q, k, v, mask, **kwargs)
        if module.layer_idx == defect.layer:
            out = without_newest_key(out, q, k, v, defect.kv_head, kwargs["scaling"])
        return out, weights

    registry[IMPLEMENTATION] = faulty
    try:
        yield
    finally:
        del registry[IMPLEMENTATION]


def without_newest_key(out: Any, q: Any, k: Any, v: Any, kv_head: int, scale: float) -> Any:
    """Recompute one head group with keys ``< position`` instead of ``<= position``.

    Args:
        out: attention output, [batch, query, head, dim].
        q: [batch, head, query, dim]; k, v: [batch, kv_head, key, dim].

    The first position keeps its only key, since no key at all would give NaN and be found at once.
    """
    import torch

    queries, keys = q.shape[2], k.shape[2]
    group = q.shape[1] // k.shape[1]
    heads = slice(kv_head * group, (kv_head + 1) * group)
    position = torch.arange(keys - queries, keys)[:, None]
    hidden = torch.arange(keys)[None, :] >= position.clamp(min=1)
    scores = q[:, heads] @ k[:, kv_head, None].transpose(-1, -2) * scale
    wrong = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v[:, kv_head, None]
    out = out.clone()
    out[:, :, heads] = wrong.transpose(1, 2)
    return out
