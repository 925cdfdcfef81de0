"""Paired ABBA timing: one ratio a pair, so that drifting clocks and shared machines cancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.endpoints.result import SpeedCheck, State
from verify.endpoints.spec import Case, EndpointSpec, Inputs
from verify.endpoints.trial import DidNotRun, Trial

_DRAWS = 2000  # of the bootstrap: its interval is then good to about a tenth of its width
_MOST_SETS = 256
_MOST_BYTES = {"cuda": 4 << 30, "cpu": 512 << 20}
_CYCLES_PER_MS = 2e6  # of a GPU at 2 GHz; slower clocks wait longer, which does no harm
_LEAD = 2.0  # the host may be held up: twice what it needed
_FALLBACK_CACHE = 32 << 20  # where a CPU does not state its last cache

Timed = Callable[[int], object]


def time_case(
    spec: EndpointSpec, case: Case, ran: Mapping[str, Trial], pairs: int
) -> list[SpeedCheck]:
    """Time the base endpoint against every other one on copies of one case's inputs.

    Only what was compared is timed: an endpoint that did not run has no speed.
    """
    base, *others = spec.endpoints
    return [_time_pair(case, base, other, ran, pairs) for other in others]


def _time_pair(case: Case, a: str, b: str, ran: Mapping[str, Trial], pairs: int) -> SpeedCheck:
    check = SpeedCheck(case=case.name, a=a, b=b, state=State.NOT_RUN)
    if missing := [name for name in (a, b) if name not in ran]:
        check.reason = f"not timed: {' and '.join(missing)} gave no output"
        return check
    try:
        sets, check.cache_bytes = rotating_sets(ran[a].inputs())
        check.input_sets, check.input_bytes = len(sets), set_bytes(sets[0])
        calls = [_caller(ran[name], sets) for name in (a, b)]
        on_cuda = _device(sets[0]) == "cuda"
        check.clock = "CUDA events" if on_cuda else "perf_counter, CPU"
        times = (_cuda_times if on_cuda else _host_times)(calls[0], calls[1], pairs, len(sets))
    except DidNotRun as error:
        check.state, check.reason = State.FAILED, error.what
        return check
    _fill(check, times)
    return check


def _fill(check: SpeedCheck, times: NDArray[np.float64]) -> None:
    """``times``: [pairs, 4], milliseconds of A B B A."""
    ratios = (times[:, 1] + times[:, 2]) / (times[:, 0] + times[:, 3])
    check.state, check.pairs = State.NOTED, len(times)
    check.a_ms = float(np.median(times[:, [0, 3]]))
    check.b_ms = float(np.median(times[:, [1, 2]]))
    check.ratio = float(np.median(ratios))
    check.low, check.high = bootstrap(ratios)
    check.ratios = [float(ratio) for ratio in ratios]
    if check.input_sets * check.input_bytes <= check.cache_bytes:
        check.reason = "warm: the inputs fit into the last cache"


def bootstrap(ratios: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the median (Efron and Tibshirani 1993, section 13.3)."""
    draws = np.random.default_rng(seed).choice(ratios, (_DRAWS, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(low), float(high)


def rotating_sets(inputs: Inputs) -> tuple[list[Inputs], int]:
    """Copies of the inputs that together are twice the last cache, as far as memory admits; and the
    bytes of that cache."""
    device = _device(inputs)
    cache, size = cache_bytes(device), max(1, set_bytes(inputs))
    wanted = -(-2 * cache // size) + 1
    count = max(2, min(wanted, _MOST_SETS, _MOST_BYTES[device] // size))
    return [inputs, *(_copy(inputs) for _ in range(count - 1))], cache


def set_bytes(inputs: Inputs) -> int:
    """Bytes of all tensors of one set of inputs."""
    tensors = [v for v in inputs.values() if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


def cache_bytes(device: str) -> int:
    """The last cache of the GPU or of a CPU core, in bytes."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    sizes = [_size(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=_FALLBACK_CACHE)


def _size(path: Path) -> int:
    text = path.read_text("ascii").strip()
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text or 0)


def _device(inputs: Inputs) -> str:
    tensors = [v for v in inputs.values() if isinstance(v, torch.Tensor)]
    return "cuda" if any(t.device.type == "cuda" for t in tensors) else "cpu"


def _copy(inputs: Inputs) -> Inputs:
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}


def _caller(trial: Trial, sets: list[Inputs]) -> Timed:
    """The bare call: the route was checked when the case ran, and recording costs time."""

    def call(index: int) -> Any:
        try:
            return trial.endpoint.call(**sets[index % len(sets)])
        except Exception as error:
            raise DidNotRun(f"did not run while it was timed: {error!r}") from error

    return call


def _warm_up(a: Timed, b: Timed, sets: int) -> None:
    for index in range(min(sets, 3)):
        a(index)
        b(index)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _cuda_times(a: Timed, b: Timed, pairs: int, sets: int) -> NDArray[np.float64]:
    """Milliseconds by events around each call, [pairs, 4]; one wait a pair.

    Before each pair the device is kept busy for as long as the host needs to enqueue all of it, so
    that the events enclose the work of the device and not the launches of the host.
    """
    _warm_up(a, b, sets)
    cycles = int(_CYCLES_PER_MS * _LEAD * _enqueue_ms(a, b))
    times = np.empty((pairs, 4))
    for pair in range(pairs):
        marks = []
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        for place, call in enumerate((a, b, b, a)):
            start, end = _event(), _event()
            start.record()
            call(4 * pair + place)
            end.record()
            marks.append((start, end))
        torch.cuda.synchronize()
        times[pair] = [start.elapsed_time(end) for start, end in marks]
    return times


def _enqueue_ms(a: Timed, b: Timed) -> float:
    """Milliseconds that the host needs for the calls of one pair: the largest of three."""
    needed = []
    for index in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for call in (a, b, b, a):
            call(index)
        needed.append(1e3 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    return max(needed)


def _host_times(a: Timed, b: Timed, pairs: int, sets: int) -> NDArray[np.float64]:
    """Milliseconds by the clock of the host, [pairs, 4]."""
    _warm_up(a, b, sets)
    times = np.empty((pairs, 4))
    for pair in range(pairs):
        for place, call in enumerate((a, b, b, a)):
            start = time.perf_counter()
            call(4 * pair + place)
            times[pair, place] = 1e3 * (time.perf_counter() - start)
    return times
