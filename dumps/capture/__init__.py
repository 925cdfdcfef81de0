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
    ops: Listing[str] = (),
    level: str | Mapping[str, str] = "full",
    edges: Literal["trace", "identity", "none"] = "trace",
    workload: Workload | None = None,
    settings: dict[str, Any] | None = None,
    model_info: Model | None = None,
    axes: Mapping[str, str] | None = None,
    byte_budget: int | None = None,
    steps: str | None = None,
    rows: str | None = None,
    layouts: Mapping[str, str] | None = None,
    rank: int | None = None,
    ranks: int | None = None,
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
        ops: globs ``<module path>[:<operation>]``: operations inside these modules are recorded
            too, what they read and what they return (docs/capture.md, "Below the module"). Not
            with ``edges="identity"``.
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
        layouts: globs on tap names to ``replicated``, ``shard:D`` or ``partial``: how the tensor of a
            rank stands to that of all ranks (docs/ranks.md).
        rank, ranks, run_id: of a run in several processes. None: as torch.distributed says; the
            processes write into one folder, and rank 0 chooses the id.
        command: how the run was started, for the manifest.
        started: what else it takes to start it again; joins ``manifest.capture``.

    Raises:
        DumpExistsError: there is something at ``path``.
        ModelError: a glob that matches nothing in this model.
        ArgumentError: an unknown level, kind of edges or layout, or a window that is none.
        DumpError: rank 0 has not begun, or another rank has not ended, within a minute.
        StorageError: the disk is full or the budget is spent, now or in any step.
    """
    from verify.dumps.capture.manifest import new_manifest
    from verify.dumps.capture.ranks import shared_run_id, this_rank
    from verify.dumps.capture.session import Capture, lean_capture
    from verify.dumps.layout import Layouts
    from verify.dumps.window import Window

    window = Window.parse(steps, rows)
    rank, ranks = this_rank(rank, ranks)
    known = Layouts(layouts)
    run_id = shared_run_id(path, rank, run_id)
    manifest = new_manifest(
        model, workload, settings, model_info, ranks=ranks, run_id=run_id, command=list(command)
    )
    manifest.capture = dict(started or {})
    if layouts:
        manifest.capture["layouts"] = known.as_json()
    if edges == "none":
        return lean_capture(
            model,
            path,
            manifest,
            taps=taps,
            ops=ops,
            level=level,
            byte_budget=byte_budget,
            rank=rank,
            window=window,
            layouts=known,
        )
    return Capture(
        model,
        path,
        manifest,
        taps=taps,
        ops=ops,
        level=level,
        edges=edges,
        axes=axes or {},
        byte_budget=byte_budget,
        rank=rank,
        window=window,
        layouts=known,
    )
