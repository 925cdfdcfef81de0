"""A capture: hooks and interceptors around a model, steps, and the dump that they fill."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Listing
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch

from verify.dumps.capture import step_arguments, torch_attention
from verify.dumps.capture.core import CoreRecorder
from verify.dumps.capture.hooks import ModuleHooks, input_ports, output_ports
from verify.dumps.capture.identity import Identity, module_call
from verify.dumps.capture.module_scalars import scalars_of
from verify.dumps.capture.ops import watch_ops
from verify.dumps.capture.positions import Step
from verify.dumps.capture.ranks import wait_for_others
from verify.dumps.capture.recorder import Recorder
from verify.dumps.capture.selection import Levels, TapSelection, port
from verify.dumps.capture.step_arguments import StepArguments
from verify.dumps.capture.steps import StepControl
from verify.dumps.capture.storages import StorageTable
from verify.dumps.capture.tracing import Tracer
from verify.dumps.capture.weights import name_weights
from verify.dumps.format import DumpWriter
from verify.dumps.format.schema import Manifest, Sequence
from verify.dumps.layout import Layouts
from verify.dumps.window import WINDOW, Window
from verify.env import collect_late, observed
from verify.errors import ArgumentError, UsageError

Edges = Literal["trace", "identity"]
WHOLE = Window()


class Capture:
    """Records what a model computes while it is entered; see :func:`verify.dumps.capture`."""

    def __init__(
        self,
        model: torch.nn.Module,
        path: str | Path,
        manifest: Manifest,
        *,
        taps: Listing[str] | None,
        ops: Listing[str] = (),
        level: str | Mapping[str, str],
        edges: Edges,
        axes: Mapping[str, str],
        byte_budget: int | None,
        rank: int,
        window: Window = WHOLE,
        layouts: Layouts | None = None,
    ) -> None:
        if edges not in ("trace", "identity"):
            raise ArgumentError("unknown edges", found=edges, allowed="trace, identity")
        if ops and edges != "trace":
            raise ArgumentError(
                "taps below modules need a trace", where="ops", found=f"edges={edges!r}",
                hint="edges='trace', or 'none' for digests alone",
            )  # fmt: skip
        self.model = model
        self.taps = TapSelection(taps, model)
        self.hooks = ModuleHooks(model, self)
        levels = Levels(level)
        manifest.capture |= {
            "level": levels.as_json(),
            "taps": list(self.taps.globs),
            "edges": edges,
            "byte_budget": byte_budget,
            "opaque": self.hooks.opaque,
            **({WINDOW: window.as_json()} if window else {}),
        }
        self.writer = DumpWriter(path, manifest, rank=rank, byte_budget=byte_budget)
        self._table = StorageTable()
        self._provenance = Tracer(self._table) if edges == "trace" else Identity(self._table)
        self._traced = edges == "trace"
        self._ops = watch_ops(ops, model, self.hooks, self._table, self)
        if isinstance(self._provenance, Tracer):
            self._provenance.watcher = self._ops
        if self._ops is not None:
            manifest.capture |= self._ops.selection.as_json()
            manifest.capture["opaque"] += self._ops.selection.opaque
        self._recorder = Recorder(
            self.writer, self._table, self._provenance, levels, axes, window.rows, layouts
        )
        self._window = window
        self._inside = window.has_step(0)
        self._provenance.active = self._inside
        self.core = CoreRecorder(self._recorder, self.taps, self._table)
        self._hugging_face = _is_hugging_face(model)
        names = [sequence.id for sequence in manifest.workload.sequences]
        self._steps = StepControl(names, self._hugging_face, self._begin, self._recorder.end)
        self._sequences: list[Sequence] | None = None
        self._token_text: dict[str, str] = {}
        self._exits = ExitStack()
        self._observed = observed.mark()

    @property
    def records(self) -> int:
        """Records so far."""
        return self._recorder.records

    @property
    def sequence_names(self) -> list[str]:
        """Sequence ids of the workload, by batch row."""
        return [sequence.id for sequence in self.writer.manifest.workload.sequences]

    @property
    def current_step(self) -> Step | None:
        return self._steps.step

    def __enter__(self) -> Self:
        name_weights(self.model, self._table)
        with ExitStack() as exits:
            exits.enter_context(self.hooks.attached())
            for interceptor in self._interceptors():
                exits.enter_context(interceptor)
            if isinstance(self._provenance, Tracer):
                exits.enter_context(self._provenance)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exits.close()
        missing = self.taps.unmatched() + (self._ops.selection.unmatched() if self._ops else [])
        if error is None and missing:
            self.writer.manifest.capture["unmatched_taps"] = missing
        if error is None:
            env = self.writer.manifest.env
            self.writer.manifest.env = collect_late(env, since=self._observed)
            wait_for_others(self.writer)
            self.writer.close(self._sequences, self._token_text)
        else:
            self.writer.__exit__(kind, error, trace)

    def _interceptors(self) -> Iterator[AbstractContextManager[None]]:
        yield torch_attention.intercepted(self.model, torch_attention.wrapper(self))
        if self._hugging_face:
            from verify.dumps.hf import interceptors

            yield interceptors.attention_functions(self)
            yield interceptors.cache_updates(self)

    @contextmanager
    def step(
        self,
        positions: Any = None,
        sequences: Listing[str | None] | None = None,
        *,
        cached: int | None = None,
        kept: Listing[int] | None = None,
    ) -> Iterator[None]:
        """One step that you delimit: all calls of the model inside belong to it.

        Args:
            positions: [b, t] integers, -1 for padding; None: found from the first call inside. Or
                [n]: a flattened batch, whose rows are tokens of several sequences.
            sequences: one id a batch row; None: those of the workload, else ``sequence#0`` ... Of a
                flattened batch one id a row, None for padding.
            cached: key positions that the cache holds before the step; None: found, else all
                that earlier steps of the same batch computed.
            kept: columns of t whose logits are computed; None: found, else all.

        Raises:
            UsageError: a step is open already.
        """
        columns = None if kept is None else np.asarray(kept, np.int64)
        at = None if positions is None else np.asarray(positions, np.int64)
        self._steps.ask(StepArguments(at, sequences, cached, columns))
        try:
            yield
        finally:
            self._steps.release()

    def record(
        self,
        tap: str,
        tensor: torch.Tensor,
        *,
        axes: str | None = None,
        columns: Listing[int] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Record a tensor of your own loop at ``tap``, a name of your choice.

        Args:
            axes: names of the axes (``b t c``); None: inferred.
            columns: columns of the step that its token axis holds; None: all, or the kept ones.
            attributes: scalars that the operation read.

        Raises:
            UsageError: no step is open.
        """
        if self.current_step is None:
            hint = "wrap the iteration of your loop in `with run.step(...)`"
            raise UsageError("there is no step to record into", where=tap, hint=hint)
        at = None if columns is None else _columns(columns, self.current_step)
        self._recorder.record(tap, tensor, axes=axes, columns=at, attributes=attributes)

    def record_op(
        self, tap: str, tensor: torch.Tensor, *, axes: str | None, attributes: dict[str, Any]
    ) -> int:
        """What the taps below modules hand over."""
        return self._recorder.record(tap, tensor, axes=axes, attributes=attributes)

    def only_own_steps(self) -> None:
        """From now on calls of the model outside of :meth:`step` are not recorded."""
        self._steps.only_asked = True

    def complete(self, sequences: Iterable[Sequence], token_text: Mapping[str, str]) -> None:
        """What the manifest shall say about sequences when the capture ends well."""
        self._sequences = list(sequences)
        self._token_text = dict(token_text)

    # What the hooks report.

    def entered(
        self, path: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not path:
            call = step_arguments.named_arguments(module, args, kwargs)
            self._steps.root_entered(call)
            self._record_arguments(call)
        if self.current_step is not None:
            for name, tensor in input_ports(args, kwargs):
                self._record_port(port(path, name), tensor, None)

    def left(
        self,
        path: str,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        if self.current_step is not None:
            for name, tensor in output_ports(output):
                if port(path, name) in self.taps:
                    call = None if self._traced else module_call(path, module, args, kwargs)
                    self._recorder.record(
                        port(path, name), tensor, call=call, attributes=scalars_of(module)
                    )
        if not path:
            self._record_logits(output)
            self._steps.root_left()

    def failed(self, path: str) -> None:
        if not path:
            self._steps.root_left()

    def _begin(self, step: Step) -> None:
        inside = self._window.has_step(step.index)
        if inside and not self._inside:
            # What was computed while nobody looked comes from outside.
            self._table.forget_all()
            name_weights(self.model, self._table)
        self._inside = self._provenance.active = inside
        self._recorder.begin(step, counting=not inside)
        self.core.begin_step(counting=not inside)
        if self._ops is not None:
            self._ops.begin_step()

    def _record_port(self, tap: str, tensor: torch.Tensor, axes: str | None) -> None:
        if tap in self.taps:
            self._recorder.record(tap, tensor, axes=axes)

    def _record_arguments(self, call: Mapping[str, Any]) -> None:
        """Token ids and positions have taps; every other tensor argument is an outside value."""
        for name, value in call.items():
            if isinstance(value, torch.Tensor) and self._inside:
                self._provenance.name_value(value, name)
        ids, positions = step_arguments.token_ids(call), step_arguments.position_ids(call)
        if ids is not None:
            self._record_port("tokens.in", ids, "b t")
        step = self.current_step
        if positions is not None and step is not None:
            shaped = positions.shape == (step.batch, step.tokens)
            self._record_port("positions.in", positions, "b t" if shaped else None)

    def _record_logits(self, output: Any) -> None:
        logits = output.get("logits") if isinstance(output, Mapping) else None
        if isinstance(logits, torch.Tensor) and self.current_step is not None:
            self._record_port("logits", logits, "b t v" if logits.ndim == 3 else None)


def lean_capture(
    model: torch.nn.Module,
    path: str | Path,
    manifest: Manifest,
    *,
    taps: Listing[str] | None,
    ops: Listing[str] = (),
    level: str | Mapping[str, str],
    byte_budget: int | None,
    rank: int,
    window: Window = WHOLE,
    layouts: Layouts | None = None,
) -> Capture:
    """A :class:`verify.dumps.capture.lean.LeanCapture`, which offers what loops need of a
    :class:`Capture`: step, record, complete.

    Raises:
        ArgumentError: a level that keeps words, or one a tap; a window of rows.
    """
    from verify.dumps.capture.lean import LeanCapture

    lean: Any = LeanCapture(
        model,
        path,
        manifest,
        taps=taps,
        ops=ops,
        level=level if isinstance(level, str) else "full",
        byte_budget=byte_budget,
        rank=rank,
        window=window,
        layouts=layouts or Layouts(),
        hugging_face=_is_hugging_face(model),
    )
    found: Capture = lean
    return found


def _columns(columns: Listing[int], step: Step) -> np.ndarray:
    return np.arange(step.tokens)[np.asarray(columns, np.int64)]


def _is_hugging_face(model: torch.nn.Module) -> bool:
    transformers = sys.modules.get("transformers.modeling_utils")
    if transformers is None:
        return False
    return any(isinstance(module, transformers.PreTrainedModel) for module in model.modules())
