"""The recorded steps of a run, and who runs one again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from verify.dumps.format import Dump
from verify.dumps.format.materialise import PADDING, Materialiser, StepKeys, step_keys
from verify.dumps.format.schema import Record
from verify.dumps.format.tokens import TOKENS_IN, TOKENS_OUT
from verify.errors import NotComparableError
from verify.formats import decode
from verify.replay.session import Watched
from verify.replay.words import to_tensor


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One forward pass as it was recorded.

    ``ids`` [b, t] int64; ``positions`` [b, t] int64, -1 for padding; ``held``: key columns of
    earlier steps; ``kept``: columns of t whose logits were computed; ``keys``: key columns with
    this step's.
    """

    index: int
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    held: int
    chooses: bool
    keys: StepKeys


def recorded_steps(dump: Dump) -> list[RecordedStep]:
    """All steps of a dump, in order.

    Raises:
        NotComparableError: the token ids of a step were not recorded.
    """
    keys = step_keys(dump)
    chosen = {record.step for record in dump.records() if record.tap == TOKENS_OUT}
    found = [
        _read_step(dump, record, keys[record.step], record.step in chosen)
        for record in dump.records()
        if record.tap == TOKENS_IN and record.rank == 0
    ]
    missing = {record.step for record in dump.records()} - {step.index for step in found}
    if missing:
        raise NotComparableError(
            "steps without recorded tokens cannot be run again",
            where=dump.path,
            found=f"{len(missing)} steps, first {min(missing)}",
            allowed=f"a record of {TOKENS_IN} in every step",
            hint="capture again with --taps default",
        )
    return found


def _read_step(dump: Dump, record: Record, keys: StepKeys, chooses: bool) -> RecordedStep:
    ids = decode(dump.read_words(record), record.dtype).reshape(record.shape).astype(np.int64)
    tokens = record.shape[1]
    positions = keys.positions[:, -tokens:]
    held = keys.positions.shape[1] - tokens
    return RecordedStep(record.step, ids, positions, held, chooses, keys)


class Runner(Protocol):
    """Runs recorded steps with a model, in order, keeping what the model keeps between them."""

    def reset(self, step: RecordedStep, state: dict[str, torch.Tensor]) -> None:
        """Prepare for ``step`` as the next one; ``state``: tap of a key or value that the core
        reads -> its tensor [b, h, s, d] before the step, empty at the first step."""
        ...

    def run(self, step: RecordedStep, watched: Watched) -> None:
        """One forward pass inside ``watched.step(...)``."""
        ...


@dataclass(slots=True)
class HuggingFaceRunner:
    """The generation loop of `verify capture`, one step at a time."""

    model: Any
    kv_cache: str = "native"
    cache: CacheMaker | None = None
    state: Any = None

    def reset(self, step: RecordedStep, state: dict[str, torch.Tensor]) -> None:
        from verify.dumps.hf.generate import State
        from verify.dumps.hf.kv_cache import new_cache

        mask = (step.keys.positions[:, : step.held] != PADDING).astype(np.int64)
        batch = len(step.ids)
        config = self.model.config
        cache = new_cache(self.kv_cache, config) if self.cache is None else self.cache(config)
        if step.held:
            _fill(cache, self.kv_cache, state)
        self.state = State(cache, mask, np.ones(batch, bool), [[] for _ in range(batch)])

    def run(self, step: RecordedStep, watched: Watched) -> None:
        from verify.dumps.hf.generate import forward_step

        if step.held == 0 and self.state.mask.shape[1]:
            self.reset(step, {})
        fed = torch.from_numpy(step.ids.copy()).to(next(self.model.parameters()).device)
        real = (step.positions != PADDING).astype(np.int64)
        with torch.no_grad():
            forward_step(self.model, watched, self.state, fed, real, choose=step.chooses)


def _fill(cache: Any, kind: str, state: dict[str, torch.Tensor]) -> None:
    """Put keys and values [b, h, s, d] of earlier steps into an empty cache, as they were read."""
    from transformers.cache_utils import DynamicCache

    for tap, keys in state.items():
        if tap.endswith("attn.in.k"):
            values = state[f"{tap.removesuffix('k')}v"]
            layer = next(int(part) for part in tap.split(".") if part.isdigit())
            # What was read is in the cache already: its own rounding was applied when it came in.
            DynamicCache.update(cache, keys, values, layer)


CacheMaker = Callable[[Any], Any]
"""An empty key-value cache for a model with this config."""

StepFunction = Callable[[torch.nn.Module, RecordedStep], None]
"""One forward pass of anybody's model: (model, step). State between steps is its own business."""


@dataclass(slots=True)
class FunctionRunner:
    """Runs a step by calling a function."""

    model: torch.nn.Module
    function: StepFunction
    chooses: bool = True

    def reset(self, step: RecordedStep, state: dict[str, torch.Tensor]) -> None:
        if step.held and state:
            raise NotComparableError(
                "a step of this model cannot be run on its own",
                where=f"step {step.index}",
                found="state of earlier steps",
                allowed="all steps in order, or a Runner that can take the state",
            )

    def run(self, step: RecordedStep, watched: Watched) -> None:
        with (
            torch.no_grad(),
            watched.step(step.positions, step.keys.sequences, cached=step.held),
        ):
            self.function(self.model, step)


@dataclass(slots=True)
class Implementation:
    """A model that can run recorded steps.

    Args:
        model: in the dtype and with the settings of the run that it stands for.
        kv_cache: of the generation loop, for Hugging Face models.
        step: how one step runs; None: as `verify capture` runs it.
        around: entered for the time of every pass, for defects that are planted in process.
        threads: of torch; None: as they are.
        cache: in place of ``kv_cache``: makes the cache of a Hugging Face model.
    """

    model: torch.nn.Module
    kv_cache: str = "native"
    step: StepFunction | None = None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    threads: int | None = None
    label: str = field(default="")
    cache: CacheMaker | None = None

    def runner(self) -> Runner:
        if self.step is not None:
            return FunctionRunner(self.model, self.step)
        return HuggingFaceRunner(self.model, self.kv_cache, self.cache)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Inside, torch has the threads of the run."""
        before = torch.get_num_threads()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            with self.around():
                yield
        finally:
            torch.set_num_threads(before)


def state_before(
    dump: Dump, materialiser: Materialiser, step: RecordedStep, dtypes: dict[str, torch.dtype]
) -> dict[str, torch.Tensor]:
    """Keys and values that the attention cores read before ``step``: [b, h, s, d] of each tap.

    Raises:
        NotComparableError: they were not recorded in full.
    """
    if not step.held:
        return {}
    found: dict[str, torch.Tensor] = {}
    for record in dump.records():
        wanted = record.tap.endswith(("attn.in.k", "attn.in.v")) and record.step == step.index - 1
        if not wanted or record.occurrence:
            continue
        if dump.holder(record).kept != "full":
            break
        words, _ = materialiser.tensor(record)
        dtype = dtypes.get(record.dtype) or getattr(torch, record.dtype)
        found[record.tap] = to_tensor(words, dtype)
    if not found:
        raise NotComparableError(
            "the keys and values before a step were not recorded",
            where=f"{dump.path}, step {step.index - 1}",
            allowed="the taps *.attn.in.k and *.attn.in.v in full",
            hint="capture again with --taps default --level full",
        )
    return found
