"""Everything about a process that can change what it computes, as one table for a manifest."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verify.env import cuda_versions, observed, repositories
from verify.env.file_hashes import FileHashes
from verify.env.libraries import loaded_libraries
from verify.env.packages import editable_folders, installed_from_files, packages
from verify.env.secrets import redact_all
from verify.env.torch_facts import compile_facts, seeds, torch_facts, torch_module
from verify.env.variables import variables

RECORD = 2
"""Edition of the table. The first had twelve packages and no libraries; see verify.env.diff."""


def collect(folders: Iterable[Path] = (), *, since: observed.Mark | None = None) -> dict[str, Any]:
    """Read, never set; torch is asked only if the process has loaded it. docs/env.md lists the
    entries. Texts that look like secrets are replaced.

    Args:
        folders: repositories whose state to record, beside those of :func:`named_folders` and of
            editable packages.
        since: count routes and kernels from this mark on.
    """
    hashes = FileHashes()
    places = [*repositories.named_folders(), *editable_folders(), *folders]
    facts: dict[str, Any] = {
        "record": RECORD,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "variables": variables(),
        "repositories": repositories.repository_states(places),
        "packages": packages(),
        "installed_from": installed_from_files(hashes),
        **cuda_versions.driver_facts(),
        **_running(hashes, since),
    }
    hashes.save()
    return dict(redact_all(facts))


def collect_late(early: dict[str, Any], *, since: observed.Mark | None = None) -> dict[str, Any]:
    """``early`` with what only the end of a run knows: libraries that were loaded on the way,
    compiled and tuned choices, routes, kernels. Switches that stand otherwise than at the beginning
    are named under ``changed_during_run``, and both states are given."""
    hashes = FileHashes()
    late = dict(redact_all(_running(hashes, since)))
    hashes.save()
    before, after = early.get("torch", {}), late.pop("torch", {})
    changed = {k: [before[k], after[k]] for k in before if k in after and before[k] != after[k]}
    gained = {k: v for k, v in after.items() if k not in before}
    late["seeds"] = early.get("seeds", late.get("seeds", {}))
    return {
        **early,
        **late,
        **({"torch": {**before, **gained}} if after else {}),
        **({"changed_during_run": changed} if changed else {}),
    }


def _running(hashes: FileHashes, since: observed.Mark | None) -> dict[str, Any]:
    """The part that grows while a process runs."""
    libraries = loaded_libraries(hashes)
    facts: dict[str, Any] = {"libraries": libraries}
    if versions := cuda_versions.library_versions(libraries):
        facts["cuda_libraries"] = versions
    if (torch := torch_module()) is not None:
        facts["torch"] = torch_facts(torch)
        facts["seeds"] = seeds(torch)
    if compiled := compile_facts():
        facts["compile"] = compiled
    return facts | observed.since(since)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
