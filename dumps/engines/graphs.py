"""Recording engines that replay captured graphs: taps inside the graphs, drained after each step."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch

from verify.dumps.capture.manifest import new_manifest
from verify.dumps.capture.positions import PADDING
from verify.dumps.capture.ranks import shared_run_id, this_rank, wait_for_others
from verify.dumps.device.drain import Drain, DrainedStep
from verify.dumps.device.layout import Keep
from verify.dumps.device.records import StepRecords
from verify.dumps.device.taps import ModuleTaps
from verify.dumps.engines.batches import EngineInterfaceError, FlatBatch, Names
from verify.dumps.engines.session import ENGINES, engine_taps, enter_attached, leave_attached
from verify.dumps.format import DumpWriter

KEEP: Final[dict[str, Keep]] = {"hash": "digest", "digest": "summary", "full": "words"}


def attach_graphs(
    target: Any,
    path: str | Path,
    *,
    engine: Literal["vllm", "sglang"] = "vllm",
    taps: Sequence[str] | None = None,
    level: Literal["hash", "digest", "full"] = "hash",
    names: Literal["prompt", "request"] = "prompt",
    inputs: tuple[str, ...] = (),
    slots: int = 8,
    step_bytes: int = 64 << 20,
    byte_budget: int | None = None,
) -> GraphAttached:
    """As :func:`verify.dumps.attach`, for an engine that will capture graphs: call it once the model
    is loaded and before they are captured. The same taps see the steps that run without a graph.

    Args:
        taps: ``<module path>.out``, ``.out.1`` or ``.in.0``, no globs; None: as for ``attach``, those
            that are inside the graphs, so no logits.
        inputs: what the model reads, recorded in full as each step reads it: arguments such as
            ``positions``, and what attention is told, such as ``seq_lens`` and ``slot_mapping``.
            :func:`verify.dumps.engines.stale.stale_inputs` looks for those that do not change.
        slots, step_bytes: of the ring in device memory (docs/device-capture.md).

    Raises:
        EngineInterfaceError: the engine has another interface, now or in any step; or a step took
            more room, or ran more often, than the ring has.
        VerifyError: as :func:`verify.dumps.capture`.
    """
    known = ENGINES[engine](target)
    model = known.model
    chosen = list(taps) if taps else graph_taps(model)
    device = next(model.parameters()).device
    # Each tensor is taken at once: engines write to them in place, and inference tensors do not
    # count how often.
    found = ModuleTaps(
        model,
        dict.fromkeys(chosen, KEEP[level]),
        device,
        inputs=inputs,
        find=known.inputs if inputs else None,
        slots=slots,
        step_bytes=step_bytes,
        held_bytes=0,
    )
    rank, ranks = this_rank(None, None)
    manifest = new_manifest(
        model, None, known.settings(), None,
        ranks=ranks, run_id=shared_run_id(path, rank, None), command=[],
    )  # fmt: skip
    manifest.capture |= {
        "level": level, "taps": chosen, "edges": "none", "byte_budget": byte_budget, "graphs": True,
    }  # fmt: skip
    writer = DumpWriter(path, manifest, rank=rank, byte_budget=byte_budget)
    return GraphAttached(known, found, writer, Names(known.prompt, names == "prompt"))


def graph_taps(model: torch.nn.Module) -> list[str]:
    """Of the taps of ``attach`` those that a hook inside the model sees."""
    modules = {path for path, _ in model.named_modules()}
    ends = (".out", ".out.1", ".in.0")
    found = [tap for tap in engine_taps(model) if tap.endswith(ends) and "*" not in tap]
    return [t for t in found if t.removesuffix(next(e for e in ends if t.endswith(e))) in modules]


class GraphAttached:
    """Taps in a model, and the dump that they fill; :meth:`close` completes it.

    ``steps``: steps that were recorded; ``skipped``: calls of the model that belonged to none, such
    as warm-up and the capture of graphs.
    """

    def __init__(self, engine: Any, taps: ModuleTaps, writer: DumpWriter, names: Names) -> None:
        self.engine, self.taps, self.names, self.writer = engine, taps, names, writer
        self.steps = 0
        self.drain = Drain(taps.buffers)
        self._records = StepRecords(writer, taps.buffers)
        with ExitStack() as exits:
            exits.enter_context(taps.attached())
            exits.callback(engine.watch_steps(self.drain.before, self._after))
            self._exits: ExitStack | None = exits.pop_all()
        enter_attached(self)
        atexit.register(self.close)

    @property
    def skipped(self) -> int:
        return self.drain.foreign

    def _after(self, batch: FlatBatch | None) -> None:
        self.drain.after(1)
        for drained in self.drain.collect():
            for step in drained:
                if batch is not None:
                    self._write(step, batch)
        if self.drain.lost or self.taps.buffers.missed:
            missed = ", ".join(sorted(self.taps.buffers.missed)[:5])
            raise EngineInterfaceError(
                "the ring has no room for the step", where=self.engine.name,
                found=f"{self.drain.lost} steps lost, taps left out: {missed or 'none'}",
                hint="choose fewer taps, or a larger step_bytes",
            )  # fmt: skip

    def _write(self, step: DrainedStep, batch: FlatBatch) -> None:
        rows = max((r.observed.rows for r in step.regions if r.observed.row_axes), default=0)
        if rows < batch.tokens:
            raise EngineInterfaceError(
                "the step computed fewer rows than its requests have", where=self.engine.name,
                found=f"{rows} rows", allowed=f"{batch.tokens} or more",
            )  # fmt: skip
        positions = np.full(rows, PADDING, np.int64)
        positions[: batch.tokens] = batch.positions[: batch.tokens]
        ids = None
        if batch.ids is not None:
            ids = np.zeros(rows, np.int64)
            ids[: batch.tokens] = batch.ids[: batch.tokens]
        whole = FlatBatch(batch.requests, batch.counts, positions, ids)
        at, owner = self.names.rows(whole)
        self._records.add(step, at, owner, ids=ids)
        self.writer.flush()
        self.steps += 1

    def close(self) -> None:
        """Complete the dump. Graphs that were captured keep their taps."""
        if self._exits is None:
            return
        self._exits.close()
        self._exits = None
        leave_attached(self)
        atexit.unregister(self.close)
        seen = {self.taps.buffers.taps[r.observed.tap] for r in self.taps.buffers.layout.regions}
        wanted = [tap for tap in self.taps.buffers.taps if not tap.endswith(".out.1")]
        if missing := [tap for tap in wanted if tap not in seen]:  # few modules return two tensors
            self.writer.manifest.capture["unmatched_taps"] = missing
        counts = {"steps": self.steps, "skipped": self.skipped}
        self.writer.manifest.capture["engine"] = counts
        wait_for_others(self.writer)
        self.writer.close(self.names.sequences(), {})
