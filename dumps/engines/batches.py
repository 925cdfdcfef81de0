"""What an engine computes in one call of its model: rows of several requests, one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from verify.dumps.capture.positions import PADDING
from verify.dumps.format import schema
from verify.dumps.hf.prompts import prompt_hash
from verify.errors import VerifyError


class EngineInterfaceError(VerifyError):
    """An engine does not have the interface that was written for: another version, most likely."""


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """One call of the model.

    ``requests``: ids in the order of the batch; ``counts`` [requests]: tokens of each; ``positions``
    and ``ids`` [rows] int64, where rows behind the last token are padding; ``last`` [requests]: the
    row whose logits are computed for each request.
    """

    requests: list[str]
    counts: np.ndarray
    positions: np.ndarray
    ids: np.ndarray | None

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    @property
    def last(self) -> np.ndarray:
        return np.cumsum(self.counts) - 1

    def check(self, where: str) -> FlatBatch:
        """
        Raises:
            EngineInterfaceError: counts and positions contradict each other.
        """
        if len(self.counts) != len(self.requests) or self.tokens > len(self.positions):
            raise EngineInterfaceError(
                "the batch and its positions do not belong together", where=where,
                found=f"{len(self.requests)} requests of {self.counts.tolist()} tokens, "
                f"{len(self.positions)} positions",
            )  # fmt: skip
        ends = np.cumsum(self.counts)
        for name, start, stop in zip(self.requests, ends - self.counts, ends, strict=True):
            if (np.diff(self.positions[start:stop]) != 1).any():
                raise EngineInterfaceError(
                    "the rows of a request are not consecutive positions", where=f"{where}, {name}",
                    found=self.positions[start:stop].tolist(),
                    hint="speculative decoding and trees are not supported",
                )  # fmt: skip
        return self


class Engine(Protocol):
    """What is particular to one engine."""

    name: str
    version: str
    model: torch.nn.Module

    def settings(self) -> dict[str, Any]:
        """How it computes, for the manifest."""

    def check_eager(self) -> None:
        """
        Raises:
            UsageError: it compiles the model or replays graphs, so that hooks are not called.
        """

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FlatBatch | None:
        """What a call of the model with these arguments computes; None: nothing that a request
        asked for, such as a warm-up.

        Raises:
            EngineInterfaceError: the engine has another interface.
        """

    def inputs(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """What a call of the model reads beside its weights, by name: arguments, lengths, slots."""

    def watch_steps(
        self, before: Callable[[], None], after: Callable[[FlatBatch | None], None]
    ) -> Callable[[], None]:
        """Have ``before`` and ``after`` called around each step, whether the model is called or a
        graph is replayed; ``after`` with what was computed, as far as the host knows it. Returns
        the function that ends it."""

    def prompt(self, request: str) -> list[int] | None:
        """The prompt of a request that is being computed, if the engine tells."""

    def watch(self, logits: Callable[[torch.Tensor], None]) -> Callable[[], None]:
        """Have ``logits`` called with what the model computes behind its last layer, one row a
        request; the function that ends it."""

    def logits_of(self, output: Any) -> torch.Tensor | None:
        """Logits among what the model returned, one row a request."""


@dataclass(slots=True)
class Names:
    """Sequence ids of requests: hash of the prompt and ordinal, as in any other run of this package;
    the id of the request where the prompt is not known."""

    prompt: Callable[[str], list[int] | None]
    by_prompt: bool = True
    _names: dict[str, str] = field(default_factory=dict)
    _prompts: dict[str, list[int]] = field(default_factory=dict)
    _seen: Counter[str] = field(default_factory=Counter)
    _fed: dict[str, dict[int, int]] = field(default_factory=dict)

    def of(self, request: str) -> str:
        found = self._names.get(request)
        if found is None:
            prompt = self.prompt(request)
            found = request
            if prompt is not None and self.by_prompt:
                stem = prompt_hash(prompt)
                found = f"{stem}#{self._seen[stem]}"
                self._seen[stem] += 1
            self._names[request] = found
            self._prompts[found] = prompt or []
            self._fed[found] = {}
        return found

    def rows(self, batch: FlatBatch) -> tuple[np.ndarray, list[str | None]]:
        """Position and sequence id of every row, padding included."""
        positions = batch.positions.copy()
        positions[batch.tokens :] = PADDING
        owner: list[str | None] = []
        for request, count in zip(batch.requests, batch.counts.tolist(), strict=True):
            owner += [self.of(request)] * count
        if batch.ids is not None:
            for name, at, token in zip(owner, positions.tolist(), batch.ids.tolist(), strict=False):
                if name is not None:
                    self._fed[name][at] = token
        return positions, owner + [None] * (len(positions) - len(owner))

    def computes(self, batch: FlatBatch) -> np.ndarray:
        """Which requests have come to the end of their prompt: their logits choose a token."""
        ends = batch.positions[batch.last] + 1
        lengths = [len(self._prompts[self.of(request)]) for request in batch.requests]
        return np.asarray(ends >= np.array(lengths, np.int64))

    def sequences(self) -> list[schema.Sequence]:
        """What was fed: prompts, and behind them the tokens that the engine had chosen."""
        found = []
        for name, fed in self._fed.items():
            prompt = self._prompts[name] or _without_gap(fed, 0)
            found.append(
                schema.Sequence(id=name, prompt=prompt, generated=_without_gap(fed, len(prompt)))
            )
        return found


def _without_gap(fed: dict[int, int], start: int) -> list[int]:
    found: list[int] = []
    while start + len(found) in fed:
        found.append(fed[start + len(found)])
    return found


def whole_numbers(values: Any) -> np.ndarray:
    """int64 of a tensor on any device, an array or a list."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, np.int64)


def need(thing: Any, name: str, where: str, version: str) -> Any:
    """Attribute ``name`` of ``thing``.

    Raises:
        EngineInterfaceError: there is none; the error lists those that there are.
    """
    try:
        return getattr(thing, name)
    except AttributeError:
        there = [each for each in dir(thing) if not each.startswith("_")]
        raise EngineInterfaceError(
            "the engine has no such attribute", where=f"{where} ({version})", found=name,
            allowed=", ".join(there[:40]),
            hint="docs/engines.md names the versions that this was written for",
        ) from None  # fmt: skip


def wrap(thing: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Let ``around(original, ...)`` take the place of a method of one object; undoes it."""
    original = getattr(thing, name, None)
    if original is None:
        return lambda: None

    def call(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    held = vars(thing).get(name)
    object.__setattr__(thing, name, call)

    def undo() -> None:
        if held is None:
            object.__delattr__(thing, name)
        else:
            object.__setattr__(thing, name, held)

    return undo
