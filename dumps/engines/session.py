"""Attaching a capture to the model of a running engine, and letting go of it."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from verify.dumps.capture import capture
from verify.dumps.capture.selection import CACHE_PORTS, CORE_PORTS, ROOT_TAPS, default_taps, port
from verify.dumps.engines.batches import Engine, FlatBatch, Names
from verify.dumps.engines.sglang import SglangEngine
from verify.dumps.engines.vllm import VllmEngine
from verify.errors import ArgumentError, UsageError

if TYPE_CHECKING:
    from verify.dumps.engines.graphs import GraphAttached
    from verify.dumps.format import DumpWriter

ENGINES: dict[str, Callable[[Any], Engine]] = {"vllm": VllmEngine, "sglang": SglangEngine}

_attached: list[Attached | GraphAttached] = []


def enter_attached(each: GraphAttached) -> None:
    """Let :func:`detach` know of taps inside graphs."""
    _attached.append(each)


def leave_attached(each: GraphAttached) -> None:
    if each in _attached:
        _attached.remove(each)


def attach(
    target: Any,
    path: str | Path,
    *,
    engine: Literal["vllm", "sglang"] = "vllm",
    taps: Sequence[str] | None = None,
    ops: Sequence[str] = (),
    level: str | Mapping[str, str] = "digest",
    edges: Literal["trace", "identity", "none"] = "none",
    names: Literal["prompt", "request"] = "prompt",
    layouts: Mapping[str, str] | None = None,
    byte_budget: int | None = None,
) -> Attached:
    """Record every request that the engine computes from now on into the new folder ``path``, until
    :func:`detach` or the end of the process. Call it in each worker; several ranks share the folder.

    Rows are named by sequence and position, whatever the schedule: chunks, batches in any order, and
    padding. Calls that no request asked for are left out.

    Args:
        target: of vLLM the worker, the model runner or the model; of SGLang the model runner or the
            model.
        taps: globs on tap names; None: embedding, norms with what enters them, linear layers and
            blocks, with both of their outputs, and logits.
        ops, level, edges, layouts, byte_budget: as for :func:`verify.dumps.capture`.
        names: sequences are called by the hash of their prompt where the engine tells it, or always
            by the id of their request.

    Raises:
        EngineInterfaceError: the engine has another interface, now or in any step.
        UsageError: it compiles its model or replays graphs, so that hooks are not called; or is
            recorded already.
        VerifyError: as :func:`verify.dumps.capture`.
    """
    if engine not in ENGINES:
        raise ArgumentError("an unknown engine", found=engine, allowed=", ".join(ENGINES))
    known = ENGINES[engine](target)
    known.check_eager()
    if any(each.engine.model is known.model for each in _attached):
        raise UsageError("this model is recorded already", where=path, hint="detach it first")
    run = capture(
        known.model,
        path,
        taps=taps or engine_taps(known.model),
        ops=ops,
        level=level,
        edges=edges,
        settings=known.settings(),
        layouts=layouts,
        byte_budget=byte_budget,
    )
    found = Attached(known, run, Names(known.prompt, names == "prompt"))
    found.__enter__()
    return found


def detach(target: Any = None) -> list[str]:
    """Complete the dumps of this process, or that of one model, runner or worker; their folders."""
    target = getattr(target, "model_runner", target)
    chosen = [
        each
        for each in _attached
        if target is None or target in (each.engine.model, getattr(each.engine, "runner", None))
    ]
    for each in chosen:
        each.close()
    return [str(each.writer.path) for each in chosen]


def engine_taps(model: torch.nn.Module) -> list[str]:
    """The default selection without attention cores and caches, which engines keep in kernels of
    their own, and with second outputs: blocks and norms return the residual stream beside."""
    absent = (*CORE_PORTS, *CACHE_PORTS, "positions.in")
    found = [tap for tap in default_taps(model) if not tap.endswith(absent)]
    heads = [path for path, _ in model.named_modules() if path.split(".")[-1] in _HEADS]
    found = [tap for tap in found if not any(tap == port(path, "out") for path in heads)]
    paths = {path for path, _ in model.named_modules() if path}
    split = [tap.removesuffix(".out") for tap in found if tap not in ROOT_TAPS]
    return [*found, *(port(path, "out.1") for path in split if path in paths and _splits(path))]


_HEADS = ("lm_head", "logits_processor", "sampler")


def _splits(path: str) -> bool:
    """Whether the module is a repeated block or a norm, by its path."""
    last = path.rpartition(".")[2]
    return last.isdigit() or "norm" in last


class Attached:
    """A capture that is fed by an engine; a context manager, or :meth:`close`.

    ``steps``: calls that were recorded; ``skipped``: calls that no request asked for.
    """

    def __init__(self, engine: Engine, run: Any, names: Names) -> None:
        self.engine = engine
        self.run = run
        self.names = names
        self.steps = self.skipped = 0
        self._step = ExitStack()
        self._batch: FlatBatch | None = None
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        if self in _attached:
            return self  # attach() entered it
        with ExitStack() as exits:
            exits.enter_context(self.run)
            self.run.only_own_steps()
            model = self.engine.model
            before = model.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True)
            exits.callback(before.remove)
            exits.callback(model.register_forward_hook(self._end).remove)
            exits.callback(self.engine.watch(self._logits))
            self._exits = exits.pop_all()
        _attached.append(self)
        atexit.register(self.close)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self not in _attached:
            return
        _attached.remove(self)
        atexit.unregister(self.close)
        self._finish()
        self.run.writer.manifest.capture["engine"] = {
            "steps": self.steps,
            "skipped": self.skipped,
        }
        self.run.complete(self.names.sequences(), {})
        self._exits.__exit__(kind, error, trace)

    @property
    def writer(self) -> DumpWriter:
        return self.run.writer  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let go of the engine and complete the dump."""
        self.__exit__(None, None, None)

    def _begin(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        self._finish()
        batch = self.engine.batch(args, kwargs)
        if batch is None or not batch.tokens:
            self.skipped += 1
            return
        positions, owner = self.names.rows(batch)
        kept = batch.last[self.names.computes(batch)]
        with ExitStack() as step:
            step.enter_context(self.run.step(positions, owner, kept=kept))
            if batch.ids is not None:
                self.run.record("tokens.in", torch.from_numpy(batch.ids), axes="t")
            self._step = step.pop_all()
        self._batch = batch
        self.steps += 1

    def _end(self, model: torch.nn.Module, args: Any, output: Any) -> None:
        logits = self.engine.logits_of(output)
        if logits is not None:
            self._logits(logits)

    def _logits(self, logits: torch.Tensor) -> None:
        """One row a request: those at the end of a prompt or behind it are kept. They are the last
        that a step computes."""
        batch = self._batch
        if batch is None or "logits" not in self.run.taps or logits.ndim != 2:
            return
        chosen = np.flatnonzero(self.names.computes(batch))
        if len(chosen) and len(logits) >= len(batch.requests):
            rows = logits[torch.from_numpy(chosen).to(logits.device)]
            at = batch.last[chosen]
            self.run.record("logits", rows, axes="t v", columns=at)
        self._finish()

    def _finish(self) -> None:
        """The step ends where the next one begins, at the latest."""
        self._batch = None
        self._step.close()
