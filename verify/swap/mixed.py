"""A model of which some layers compute as the other side does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from verify.errors import NotComparableError
from verify.replay.steps import Implementation, RecordedStep
from verify.replay.values import Values
from verify.swap.bench import Bench, Logits
from verify.swap.parts import Aspect, Part, members


@dataclass(frozen=True, slots=True)
class Ways:
    """How a side computes: names as in ``verify capture``."""

    attn: str
    kv_cache: str


@dataclass(slots=True)
class MixedBench:
    """Runs one side with chosen parts of the implementation of the other.

    Args:
        base: implementation of the run whose steps are run.
        values: rows of the other run for the records of this one.
        steps: up to the one that makes the choice.
        at: step, sequence and position of the logits looked at.
        parts: that may be exchanged.
        layers: of the model.
        own, other: how this side and the other one compute.
    """

    base: Implementation
    values: Values
    steps: list[RecordedStep]
    at: tuple[int, str, int]
    parts: Sequence[Part]
    layers: int
    own: Ways
    other: Ways
    passes: int = 0
    proven: int = 0
    """Calls that the exchanged parts served in the last trial."""
    _served: Counter[tuple[Aspect, int]] = field(default_factory=Counter)

    def run(self, chosen: frozenset[str]) -> Logits:
        """The logits with exactly these parts of the other side.

        Raises:
            NotComparableError: a chosen part was never called.
        """
        taken = members(self.parts, chosen)
        self._served.clear()
        mixed = replace(self.base, cache=self._cache(taken), around=lambda: self._around(taken))
        bench = Bench(mixed, self.values, self.steps, self.at)
        logits = bench.run(frozenset())
        self.passes += bench.passes
        idle = sorted(
            f"layer {layer} {aspect}" for aspect, layer in taken if not self._served[aspect, layer]
        )
        if idle:
            raise NotComparableError(
                "a swap did not take place",
                where=idle[0],
                found=f"{len(idle)} exchanged parts were never called",
                allowed="all of them",
                hint="this model computes them elsewhere; exchange tensors: leave out --by",
            )
        self.proven = sum(self._served[each] for each in taken)
        return logits

    def _cache(self, taken: set[tuple[Aspect, int]]) -> Callable[[Any], Any]:
        keys, values = (self._rounded(aspect, taken) for aspect in (Aspect.KEYS, Aspect.VALUES))

        def make(config: Any) -> Any:
            from verify.dumps.hf.kv_cache import E4M3Cache

            served = self._served

            class Counted(E4M3Cache):
                def update(
                    self,
                    key_states: Any,
                    value_states: Any,
                    layer_idx: int,
                    *args: Any,
                    **kwargs: Any,
                ) -> Any:
                    served[Aspect.KEYS, layer_idx] += 1
                    served[Aspect.VALUES, layer_idx] += 1
                    return super().update(key_states, value_states, layer_idx, *args, **kwargs)

            return Counted(config=config, keys=keys, values=values)

        return make

    def _rounded(self, aspect: Aspect, taken: set[tuple[Aspect, int]]) -> set[int]:
        """Layers in which the cache rounds."""

        def kind(layer: int) -> str:
            return (self.other if (aspect, layer) in taken else self.own).kv_cache

        return {layer for layer in range(self.layers) if kind(layer) == "e4m3"}

    @contextmanager
    def _around(self, taken: set[tuple[Aspect, int]]) -> Iterator[None]:
        layers = {layer for aspect, layer in taken if aspect is Aspect.ATTENTION}
        with ExitStack() as stack:
            if layers:
                stack.enter_context(_attention_of(self.other.attn, layers, self._served))
            stack.enter_context(self.base.around())
            yield


@contextmanager
def _attention_of(
    name: str, layers: set[int], served: Counter[tuple[Aspect, int]]
) -> Iterator[None]:
    """Inside, the attention cores of ``layers`` are those of the implementation ``name``."""
    from transformers.modeling_utils import AttentionInterface

    sound = AttentionInterface.get_interface

    def get_interface(self: Any, implementation: str, default: Any) -> Any:
        own, other = sound(self, implementation, default), sound(self, name, default)

        def mixed(module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
            layer = int(module.layer_idx)
            if layer not in layers:
                return own(module, q, k, v, mask, **more)
            served[Aspect.ATTENTION, layer] += 1
            return other(module, q, k, v, _mask_for(name, q, k, mask), **more)

        return mixed

    AttentionInterface.get_interface = get_interface
    try:
        yield
    finally:
        AttentionInterface.get_interface = sound


def _mask_for(name: str, q: Any, k: Any, mask: Any) -> Any:
    """The mask as the implementation expects it: eager cores add one always, fused ones are given
    none where it is plainly causal and mask by themselves."""
    import torch

    queries, keys = q.shape[2], k.shape[2]
    lower = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    if name == "eager":
        if mask is not None:
            return mask
        plain = torch.zeros(queries, keys, dtype=q.dtype)
        return plain.masked_fill(~lower, torch.finfo(q.dtype).min)[None, None]
    if mask is None:
        return None
    allowed = mask if mask.dtype == torch.bool else mask == 0
    square = queries == keys or queries == 1
    return None if square and bool((allowed[..., -keys:] == lower).all()) else mask
