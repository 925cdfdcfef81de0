"""A model under watch: the hook points of a capture, with a sink in the recorder's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Listing
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verify.dumps.capture import torch_attention
from verify.dumps.capture.core import CoreCall, CoreRecorder
from verify.dumps.capture.hooks import ModuleHooks, input_ports, output_ports
from verify.dumps.capture.masks import MaskRule
from verify.dumps.capture.observing import Taps
from verify.dumps.capture.ops import watch_ops
from verify.dumps.capture.positions import PositionTracker, Step
from verify.dumps.capture.selection import port
from verify.dumps.capture.storages import StorageTable
from verify.dumps.capture.tracing import Tracer
from verify.dumps.capture.weights import name_weights
from verify.errors import UsageError
from verify.replay.sink import Sink


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """The module whose output is being looked at, and what it was given."""

    module: torch.nn.Module
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The attention core whose output is being looked at: operands, mask tensor and mask rule."""

    operands: tuple[torch.Tensor, ...]
    mask: torch.Tensor | None
    rule: MaskRule
    attributes: dict[str, Any]


class _Core(CoreRecorder):
    """Remembers the mask of a call until its output comes."""

    seen: tuple[torch.Tensor | None, MaskRule] = (None, MaskRule())

    @contextmanager
    def call(
        self,
        step: Step,
        path: str,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        rule: MaskRule,
        attributes: dict[str, Any],
    ) -> Iterator[CoreCall]:
        with super().call(step, path, qkv, mask, rule, attributes) as call:
            self.seen = (mask, rule)
            yield call
            self.seen = (mask, rule)


class Watched:
    """Watches a model while it is entered; satisfies what the interceptors of a capture ask."""

    def __init__(
        self,
        model: torch.nn.Module,
        sink: Sink,
        taps: Taps,
        names: list[str],
        ops: Listing[str] = (),
    ) -> None:
        self.model = model
        self.taps = taps
        self.sequence_names = names
        self.hooks = ModuleHooks(model, self)
        self.sink = sink
        self.call: ModuleCall | AttentionCall | None = None
        self._tracer = Tracer(StorageTable())
        self._tracer.active = False
        self._ops = watch_ops(ops, model, self.hooks, self._tracer.table, self)
        self._tracer.watcher = self._ops
        self._core = _Core(self, taps, StorageTable())
        self._tracker = PositionTracker()
        self._step: Step | None = None
        self._head = _output_head(model)
        self._head_call: ModuleCall | None = None
        self._hugging_face = "transformers.modeling_utils" in sys.modules

    @property
    def core(self) -> CoreRecorder:
        return self._core

    @property
    def provenance(self) -> Any:
        return self.sink.provenance

    @property
    def current_step(self) -> Step | None:
        return self._step

    @contextmanager
    def entered_model(self) -> Iterator[None]:
        """Hooks and interceptors are in place inside."""
        with ExitStack() as exits:
            exits.enter_context(self.hooks.attached())
            wrapper = torch_attention.wrapper(self)
            exits.enter_context(torch_attention.intercepted(self.model, wrapper))
            if self._hugging_face:
                from verify.dumps.hf import interceptors

                exits.enter_context(interceptors.attention_functions(self))
                exits.enter_context(interceptors.cache_updates(self))
            if self._ops is not None:
                name_weights(self.model, self._tracer.table)
                exits.enter_context(self._tracer)
            yield

    def start_at(self, index: int, columns: np.ndarray) -> None:
        """The next step is number ``index``, after key columns [b, columns] of earlier ones."""
        self._tracker = PositionTracker()
        self._tracker._steps = index
        if columns.shape[1]:
            from verify.dumps.capture.positions import KeyAxis

            self._tracker._keys = KeyAxis(columns, 0)

    @contextmanager
    def step(
        self,
        positions: Any = None,
        sequences: Listing[str] | None = None,
        *,
        cached: int | None = None,
        kept: Listing[int] | None = None,
    ) -> Iterator[None]:
        """One step; positions [b, t] int64, -1 for padding, one sequence id a row."""
        if self._step is not None:
            raise UsageError("a step is open already", hint="close it before the next one begins")
        self._step = self._tracker.begin(
            np.asarray(positions, np.int64),
            list(sequences or self.sequence_names),
            cached=cached,
            kept=None if kept is None else np.asarray(kept, np.int64),
        )
        self.sink.begin(self._step)
        self._core.begin_step()
        if self._ops is not None:
            self._ops.begin_step()
        try:
            yield
        finally:
            self._step = None

    def record(self, tap: str, tensor: torch.Tensor, **more: Any) -> int:
        """From the interceptors, the core and loops: hand on to the sink."""
        if self._step is None or tap not in self.taps:
            return -1
        if tap.endswith("attn.out") and more.get("call") is not None:
            mask, rule = self._core.seen
            operands = more["call"].operands
            self.call = AttentionCall(operands, mask, rule, more.get("attributes") or {})
        try:
            with self._tracer.paused():
                return self.sink.record(tap, tensor, **more)
        finally:
            self.call = None

    def record_op(
        self, tap: str, tensor: torch.Tensor, *, axes: str | None, attributes: dict[str, Any]
    ) -> int:
        """From the taps below modules."""
        return self.record(tap, tensor, axes=axes, attributes=attributes)

    # What the hooks report.

    def entered(
        self, path: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        for name, tensor in input_ports(args, kwargs):
            self._hand_on(port(path, name), tensor, None)

    def left(
        self,
        path: str,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        call = ModuleCall(module, args)
        if module is self._head:
            self._head_call = call
        for name, tensor in output_ports(output):
            self._hand_on(port(path, name), tensor, call if name == "out" else None)
        logits = output.get("logits") if not path and isinstance(output, Mapping) else None
        if isinstance(logits, torch.Tensor):
            self._hand_on("logits", logits, self._head_call)
            self._head_call = None

    def failed(self, path: str) -> None:
        return None

    def _hand_on(self, tap: str, tensor: torch.Tensor, call: ModuleCall | None) -> None:
        if self._step is not None and tap in self.taps:
            self.call = call
            try:
                with self._tracer.paused():
                    self.sink.record(tap, tensor)
            finally:
                self.call = None


def _output_head(model: torch.nn.Module) -> torch.nn.Module | None:
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if callable(getter) else None
    return head if isinstance(head, torch.nn.Module) else None
