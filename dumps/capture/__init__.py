"""Recording what any ``torch.nn.Module`` computes, as a context manager (docs/capture.md).

This module imports without torch; the capture itself needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from verify.dumps.capture.session import Capture
    from verify.dumps.format.schema import Model, Workload

__all__ = ["capture"]


def capture(
    model: torch.nn.Module,
    path: str | Path,
    *,
    taps: Listing[str] | None = None,
    level: str | Mapping[str, str] = "full",
    edges: Literal["trace", "identity", "none"] = "trace",
    workload: Workload | None = None,
    settings: dict[str, Any] | None = None,
    model_info: Model | None = None,
    axes: Mapping[str, str] | None = None,
    byte_budget: int | None = None,
    steps: str | None = None,
    rows: str | None = None,
    rank: int = 0,
    ranks: int = 1,
    run_id: str | None = None,
    command: Listing[str] = (),
    started: Mapping[str, Any] | None = None,
) -> Capture:
    """Record a run of ``model`` into the new folder ``path``.

        with verify.dumps.capture(model, "runs/a") as run:
            for batch in batches:
                model(batch)                 # each outermost call is a step, or:
                with run.step(positions=positions, sequences=names):
                    ...

    The numbers that the model computes are not changed by one bit. Every step is on disk when it
    ends; a run that is killed leaves all steps before.

    Args:
        taps: globs on tap names; ``default`` stands for the default selection, which is also taken
            for None.
        level: ``full`` (every word), ``digest`` or ``stats``; or a table of globs to levels. With
            ``edges="none"`` also ``hash``: digests alone.
        edges: ``trace`` follows every operation to know the inputs of a record exactly;
            ``identity`` recognises recorded tensors only and costs less. ``none`` keeps digests of
            module inputs and outputs only, of whole steps at once: cheap enough to leave on.
        workload: what is computed; None: the sequences are ``sequence#0`` and so on.
        settings: how it is computed, for the manifest.
        model_info: None: class name, config and digests of all weights.
        axes: globs on tap names to axis names, where they are not inferred well.
        byte_budget: bytes that the dump may take on disk.
        steps: only these steps, for example ``0:3,7``; token ids are kept of all.
        rows: only rows at these positions, for example ``0:112``. Keys, which every row reads, are
            kept whole. Not with ``edges="none"``.
        rank, ranks, run_id: of a run in several processes, which share ``run_id``.
        command: how the run was started, for the manifest.
        started: what else it takes to start it again; joins ``manifest.capture``.

    Raises:
        DumpExistsError: there is something at ``path``.
        ModelError: a tap glob that matches nothing in this model.
        ArgumentError: an unknown level or kind of edges, or a window that is none.
        StorageError: the disk is full or the budget is spent, now or in any step.
    """
    from verify.dumps.capture.manifest import new_manifest
    from verify.dumps.capture.session import Capture, lean_capture
    from verify.dumps.window import Window

    window = Window.parse(steps, rows)
    manifest = new_manifest(
        model, workload, settings, model_info, ranks=ranks, run_id=run_id, command=list(command)
    )
    manifest.capture = dict(started or {})
    if edges == "none":
        return lean_capture(
            model,
            path,
            manifest,
            taps=taps,
            level=level,
            byte_budget=byte_budget,
            rank=rank,
            window=window,
        )
    return Capture(
        model,
        path,
        manifest,
        taps=taps,
        level=level,
        edges=edges,
        axes=axes or {},
        byte_budget=byte_budget,
        rank=rank,
        window=window,
    )
