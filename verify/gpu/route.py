"""Which implementation answered a call: recorded for each one, never guessed afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from verify.env import observed

CPU_ORACLE = "cpu_replay_oracle"


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """One answered call.

    ``route`` is the name of a kernel variant, ``"sdpa"`` or ``"fp64"`` for a fallback, or
    ``"cpu_replay_oracle"`` for the CPU stand-in of a kernel. ``build_id`` and ``arch`` are empty
    where no kernel of ours ran. ``reason`` says why the route is not the one that was asked for.
    A replay of a CUDA graph runs what was recorded when it was captured and records nothing.
    """

    operation: str
    route: str
    device: str
    shape: tuple[tuple[str, int], ...] = ()
    arch: str = ""
    build_id: str = ""
    mass: str = ""
    reason: str = ""

    @property
    def is_kernel(self) -> bool:
        """True when a kernel of this project ran on a GPU."""
        return bool(self.build_id)

    def as_dict(self) -> dict[str, object]:
        """The record as JSON values."""
        return asdict(self) | {"shape": dict(self.shape)}


class _Sinks(threading.local):
    def __init__(self) -> None:
        self.open: list[list[RouteRecord]] = []
        self.last: RouteRecord | None = None


_sinks = _Sinks()


def record(route: RouteRecord) -> None:
    """Note one answered call, in this thread."""
    _sinks.last = route
    build = f" build {route.build_id[:12]}" if route.build_id else ""
    observed.count("routes", f"{route.operation} -> {route.route} on {route.device}{build}")
    for sink in _sinks.open:
        sink.append(route)


def last_route() -> RouteRecord | None:
    """The latest answered call of this thread."""
    return _sinks.last


@contextmanager
def record_routes() -> Iterator[list[RouteRecord]]:
    """Collect the routes of all calls of this thread inside the block, in order."""
    sink: list[RouteRecord] = []
    _sinks.open.append(sink)
    try:
        yield sink
    finally:
        _sinks.open.remove(sink)
