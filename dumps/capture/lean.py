"""A capture that keeps no words and follows no edges, cheap enough to leave on.

What a tap sees is copied into a staging buffer of its row length, or, when it is large, fingerprinted
at once; a step is then digested in a few calls and handed to the writer as one block. Tensors on a
CUDA device are fingerprinted there, and their digests fetched when the step ends.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Listing
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import torch

from verify.dumps.capture import step_arguments
from verify.dumps.capture.fingerprints import Fingerprints, Keep, Stage
from verify.dumps.capture.hooks import ModuleHooks, Unobserved, output_ports
from verify.dumps.capture.lean_plan import Seen, StepPlan, plan_step, rows_lead
from verify.dumps.capture.ops import watch_ops
from verify.dumps.capture.positions import Step
from verify.dumps.capture.ranks import wait_for_others
from verify.dumps.capture.selection import TOKEN_TAPS, TapSelection, port
from verify.dumps.capture.step_arguments import StepArguments
from verify.dumps.capture.steps import StepControl
from verify.dumps.capture.storages import StorageTable
from verify.dumps.capture.tensor_words import dtype_name, row_matrix
from verify.dumps.capture.tracing import Tracer
from verify.dumps.capture.weights import name_weights
from verify.dumps.digests import row_digests
from verify.dumps.format import DumpWriter
from verify.dumps.format.schema import Input, Manifest, Record, Rows, Sequence
from verify.dumps.layout import Layouts
from verify.dumps.window import WINDOW, Window
from verify.errors import ArgumentError, UsageError

FLUSH_SECONDS: Final = 2.0
"""Steps that end within this time share a part of the dump: committing one costs milliseconds."""

LEVELS: Final[dict[str, Keep]] = {"hash": "digest", "digest": "summary", "stats": "statistics"}


class LeanCapture:
    """Records digests of what a model computes while it is entered; see
    :func:`verify.dumps.capture` with ``edges="none"``."""

    def __init__(
        self,
        model: torch.nn.Module,
        path: str | Path,
        manifest: Manifest,
        *,
        taps: Listing[str] | None,
        ops: Listing[str] = (),
        level: str,
        byte_budget: int | None,
        rank: int,
        hugging_face: bool,
        window: Window,
        layouts: Layouts,
    ) -> None:
        if level not in LEVELS:
            raise ArgumentError(
                "this level needs edges", where="level", found=level, allowed=", ".join(LEVELS),
                hint="edges='none' keeps digests; use edges='identity' for full tensors",
            )  # fmt: skip
        if window.rows is not None:
            raise ArgumentError(
                "a window of rows needs edges", where="rows", found=window.rows,
                hint="edges='none' records whole steps; use edges='identity' or 'trace'",
            )  # fmt: skip
        self.model = model
        self.taps = TapSelection(taps, model)
        manifest.capture |= {
            "level": level,
            "taps": list(self.taps.globs),
            "edges": "none",
            "byte_budget": byte_budget,
            "opaque": [],
            **({WINDOW: window.as_json()} if window else {}),
        }
        self._tracer, self._hooks = Tracer(StorageTable()), ModuleHooks(model, Unobserved())
        self._tracer.active = False
        self._ops = watch_ops(ops, model, self._hooks, self._tracer.table, self)
        self._tracer.watcher = self._ops
        if self._ops is not None:
            manifest.capture |= self._ops.selection.as_json()
            manifest.capture["opaque"] = self._hooks.opaque + self._ops.selection.opaque
        self._window = window
        self._counting = False
        self.writer = DumpWriter(path, manifest, rank=rank, byte_budget=byte_budget)
        self.records = 0
        self._keep = LEVELS[level]
        self._layouts = layouts
        self._stage = Stage()
        self._found = Fingerprints(self._keep)
        self._seen: list[Seen] = []
        self._plans: dict[Any, StepPlan] = {}
        self._given: dict[str, str] = {}
        self._tokens: list[tuple[str, np.ndarray, torch.Tensor, np.ndarray | None]] = []
        self._visits: Counter[tuple[str, int]] = Counter()
        names = [sequence.id for sequence in manifest.workload.sequences]
        self._steps = StepControl(names, hugging_face, self._begin, self._end)
        self._sequences: list[Sequence] | None = None
        self._token_text: dict[str, str] = {}
        self._exits = ExitStack()
        self._step: Step | None = None
        self._flushed = time.monotonic()

    @property
    def sequence_names(self) -> list[str]:
        """Sequence ids of the workload, by batch row."""
        return [sequence.id for sequence in self.writer.manifest.workload.sequences]

    @property
    def current_step(self) -> Step | None:
        return self._steps.step

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            root = self.model
            exits.callback(
                root.register_forward_pre_hook(self._entered, with_kwargs=True, prepend=True).remove
            )
            for path, module in root.named_modules():
                for handle in self._attach(path, module):
                    exits.callback(handle.remove)
            exits.callback(root.register_forward_hook(self._left, always_call=True).remove)
            if self._ops is not None:
                name_weights(root, self._tracer.table)
                exits.enter_context(self._hooks.attached())
                exits.enter_context(self._tracer)
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
            wait_for_others(self.writer)
            self.writer.close(self._sequences, self._token_text)
        else:
            self.writer.__exit__(kind, error, trace)

    def _attach(self, path: str, module: torch.nn.Module) -> Iterator[Any]:
        """Hooks where a tap is wanted, and nowhere else."""
        if port(path, "in.0") in self.taps:
            yield module.register_forward_pre_hook(self._input_hook(port(path, "in.0")))
        if any(port(path, name) in self.taps for name in ("out", "out.1")):
            yield module.register_forward_hook(self._output_hook(path))

    def _input_hook(self, tap: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], torch.Tensor) and self._step is not None:
                self._take(tap, args[0])

        return hook

    def _output_hook(self, path: str) -> Callable[..., None]:
        tap = port(path, "out")
        first = tap in self.taps

        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if self._step is None:
                return
            if isinstance(output, torch.Tensor):
                if first:
                    self._take(tap, output)
                return
            for name, tensor in output_ports(output):
                if port(path, name) in self.taps:
                    self._take(port(path, name), tensor)

        return hook

    @contextmanager
    def step(
        self,
        positions: Any = None,
        sequences: Listing[str | None] | None = None,
        *,
        cached: int | None = None,
        kept: Listing[int] | None = None,
    ) -> Iterator[None]:
        """One step that you delimit; as :meth:`verify.dumps.capture.session.Capture.step`."""
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
        """Record a tensor of your own loop: token ids in full, others as digests.

        Raises:
            UsageError: no step is open.
        """
        if self._step is None:
            hint = "wrap the iteration of your loop in `with run.step(...)`"
            raise UsageError("there is no step to record into", where=tap, hint=hint)
        if axes is not None:
            self._given[tap] = axes
        if tap not in TOKEN_TAPS:
            self._take(tap, tensor)
            return
        at = None if columns is None else np.asarray(columns, np.int64) % self._step.tokens
        words = row_matrix(tensor, axes or "b t")
        self._tokens.append((tap, words, tensor, at))

    def only_own_steps(self) -> None:
        """From now on calls of the model outside of :meth:`step` are not recorded."""
        self._steps.only_asked = True

    def complete(self, sequences: Iterable[Sequence], token_text: Mapping[str, str]) -> None:
        """What the manifest shall say about sequences when the capture ends well."""
        self._sequences = list(sequences)
        self._token_text = dict(token_text)

    def _entered(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        call = step_arguments.named_arguments(module, args, kwargs)
        self._steps.root_entered(call)
        ids = step_arguments.token_ids(call)
        if ids is not None and self._step is not None:
            self._tokens.append(("tokens.in", row_matrix(ids, "b t"), ids, None))

    def _left(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        logits = output.get("logits") if isinstance(output, Mapping) else None
        if isinstance(logits, torch.Tensor) and self._step is not None and "logits" in self.taps:
            if logits.ndim == 3:
                self._given["logits"] = "b t v"
            self._take("logits", logits)
        self._steps.root_left()

    def record_op(
        self, tap: str, tensor: torch.Tensor, *, axes: str | None, attributes: dict[str, Any]
    ) -> int:
        """What the taps below modules hand over; a block of records has no scalars."""
        assert self._step is not None
        self._given.pop(tap, None)
        if axes is not None:
            self._given[tap] = axes
        self._take(tap, tensor, staged=rows_lead(tensor, self._step, axes))
        return -1

    def _take(self, tap: str, tensor: torch.Tensor, *, staged: bool = True) -> None:
        """What a hook sees, as it is now."""
        shape, strides, dtype = tensor.shape, tensor.stride(), tensor.dtype
        if self._counting:
            self._seen.append((tap, shape, strides, dtype, -1))
            return
        kind = (shape, strides, dtype, tensor.device)
        place = self._stage.put(tensor, kind) if staged else -1
        index = len(self._seen)
        self._seen.append((tap, shape, strides, dtype, place))
        if place < 0:
            assert self._step is not None
            axes = self._given.get(tap)
            if self._found.take_dense(index, tap, tensor, kind, self._step, axes):
                return
            with self._tracer.paused():
                self._found.take_now(index, tap, tensor, self._step, axes)

    def _begin(self, step: Step) -> None:
        self._step = step
        if self._ops is not None:
            self._ops.begin_step()
        self._counting = not self._window.has_step(step.index)

    def _end(self) -> None:
        step = self._step
        assert step is not None
        kept = None if step.kept is None else len(step.kept)
        key = (step.batch, step.tokens, kept, tuple(self._seen))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = plan_step(
                self._seen, step, self._given, self._keep, self._layouts
            )
        for token in (t for t in self._tokens if t[0] == "tokens.in"):
            self._add_tokens(step, *token)
        if plan.template.n_rows:
            names = plan.names(step, self._visits)
            if not self._counting:
                rows = Rows(*names, *self._found.gather(plan, self._stage))
                self.writer.add_block(plan.template, self.records, step.index, rows)
                self.records += len(plan.template.records)
        for token in (t for t in self._tokens if t[0] != "tokens.in"):
            self._add_tokens(step, *token)
        self._step = None
        self._seen = []
        self._tokens.clear()
        self._stage.clear()
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.writer.flush()
            self._flushed = time.monotonic()

    def _add_tokens(
        self, step: Step, tap: str, words: np.ndarray, ids: torch.Tensor, at: np.ndarray | None
    ) -> None:
        """Token ids are what a run is told by: in full at every level."""
        name = dtype_name(ids, tap)
        record = Record(
            seq=self.records, step=step.index, tap=tap, dtype=name,
            axes="t" if ids.ndim == 1 else "b t",
            shape=list(ids.shape), strides=list(ids.stride()), inputs=[Input(kind="unknown")],
            row_length=words.shape[1],
        )  # fmt: skip
        names = step.row_names(at)
        rows = Rows(names.sequence, names.position, names.visit, row_digests(words, name))
        self.writer.add(record, rows, words, owned=True)
        self.records += 1
