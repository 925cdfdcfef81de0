"""What a process saw itself do: routes that answered calls, kernels that were launched.

Counters of the whole process. A capture takes a :func:`mark` when it begins and asks for what came
since, so that two captures in one process do not share their counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Mark = dict[str, Counter[str]]

_counts: Mark = {}


def count(section: str, what: str, times: int = 1) -> None:
    """Note that ``what`` happened, for example ``count("routes", "prefill -> sdpa on cpu")``."""
    _counts.setdefault(section, Counter())[what] += times


def mark() -> Mark:
    """The counts so far."""
    return {section: Counter(counts) for section, counts in _counts.items()}


def since(start: Mark | None) -> dict[str, dict[str, int]]:
    """Section -> what -> how often it happened since ``start``; None: since the process began."""
    found = {}
    for section, counts in _counts.items():
        new = counts - (start or {}).get(section, Counter())
        if new:
            found[section] = dict(sorted(new.items()))
    return found


@contextmanager
def record_kernels() -> Iterator[None]:
    """Count the kernels that are launched inside, from torch's profiler: on a GPU its kernels,
    without one the operators of the CPU backends. Profiling slows the run and may change timing.

    Kernels inside a replayed CUDA graph are counted each time that they really run.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        import torch
    kinds = [torch.profiler.ProfilerActivity.CPU]
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profile:
        yield
    wanted = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    for event in profile.events():
        # Operators of the CPU are `namespace::name`; the profiler lists other work beside them.
        if event.device_type == wanted and (on_gpu or "::" in event.name):
            count("kernels", event.name)
