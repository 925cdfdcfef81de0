"""Where tensors are compared: in this process, in several, or on a dask cluster.

All speak the interface of :mod:`concurrent.futures`. Work is cut the same way whatever the executor,
and results are taken in the order in which it was cut, so that they are the same in every bit.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from verify.errors import ArgumentError, UsageError

T = TypeVar("T")
R = TypeVar("R")

KINDS: Final = ("serial", "processes", "dask")


class SerialExecutor(Executor):
    """Runs what it is given at once, in this thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)
        return future


@contextmanager
def open_executor(
    kind: str = "serial", workers: int | None = None, scheduler: str | None = None
) -> Iterator[Executor]:
    """The executor that a command line asks for.

    Args:
        kind: one of :data:`KINDS`.
        workers: of ``processes``; None: as many as this process may use cores.
        scheduler: address of the scheduler of ``dask``, for example ``tcp://host:8786``. Its workers
            must reach the dumps under the paths or URLs that they have here.

    Raises:
        ArgumentError: an unknown kind, or options of another one.
        UsageError: dask is not installed, its scheduler does not answer, or a worker died.
    """
    _check(kind, workers, scheduler)
    try:
        if kind == "processes":
            count = workers or len(os.sched_getaffinity(0))
            # Not forked: Arrow and other libraries run threads in this process.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(count, mp_context=context) as pool:
                yield pool
        elif kind == "dask":
            with _dask(str(scheduler)) as pool:
                yield pool
        else:
            yield SerialExecutor()
    except BrokenExecutor as error:
        raise UsageError(
            "a worker process ended before its work",
            where=f"--executor {kind}",
            found=error,
            hint="fewer --workers need less memory; --executor serial needs least",
        ) from error


def _check(kind: str, workers: int | None, scheduler: str | None) -> None:
    if kind not in KINDS:
        raise ArgumentError(
            "no such executor", where="--executor", found=kind, allowed=", ".join(KINDS)
        )
    if workers is not None and (kind != "processes" or workers < 1):
        raise ArgumentError(
            "workers are counted for processes",
            where="--workers",
            found=f"{workers} with --executor {kind}",
            allowed="1 or more, with --executor processes",
        )
    if (kind == "dask") != (scheduler is not None):
        raise ArgumentError(
            "a scheduler goes with dask, and dask with a scheduler",
            where="--scheduler",
            found=f"--executor {kind}, --scheduler {scheduler}",
            allowed="--executor dask --scheduler ADDRESS",
        )


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError(
            "dask is not installed",
            where="--executor dask",
            found=error,
            hint="pip install 'firstdiff[dask]', here and on the workers",
        ) from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(
            "the dask scheduler does not answer", where=address, found=error,
            allowed="an address such as tcp://host:8786",
        ) from None  # fmt: skip
    with client:
        # A pure task would be looked up by its arguments: dumps may have changed since.
        yield client.get_executor(pure=False)


def width(executor: Executor) -> int:
    """How many tasks to hand out ahead: enough to keep workers busy, few enough to stay small."""
    if isinstance(executor, SerialExecutor):
        return 1
    return 2 * int(getattr(executor, "_max_workers", 8))


def in_order(executor: Executor, work: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
    """``work`` of every task, in their order; tasks are made as workers become free."""
    ahead = width(executor)
    running: deque[Future[R]] = deque()
    try:
        for task in tasks:
            running.append(executor.submit(work, task))
            while len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()
