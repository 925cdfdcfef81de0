"""Metamorphic relations that are ready to declare (docs/endpoints.md lists them).

Each takes ``kind``: ``"bitwise"``, or a ``Bound`` on the relative L2 difference where another order
of the same sums is admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from verify.bounds import Bound
from verify.endpoints.guarded import Guarded, own_strides, unowned_positions
from verify.endpoints.outputs import Outputs, on_host
from verify.endpoints.spec import Inputs, Relation
from verify.endpoints.trial import CannotRun, Pair, RelationBroken, Trial
from verify.errors import ArgumentError

Kind = Literal["bitwise"] | Bound


def only(endpoints: Sequence[str], relation: Relation) -> Relation:
    """``relation``, declared for the named endpoints alone."""
    return replace(relation, endpoints=tuple(endpoints))


def repeat(times: int = 3, kind: Kind = "bitwise") -> Relation:
    """The same call again, ``times`` more, on fresh inputs."""

    def run(trial: Trial) -> Iterator[Pair]:
        for number in range(1, times + 1):
            yield Pair(trial.output, trial.call(trial.inputs()), f"repeat {number}")

    return Relation(f"repeat {times} times" if times > 1 else "repeat", kind, run=run)


def permute_pages(
    caches: Sequence[str], table: str, *, block_axis: int = 0, seed: int = 0, kind: Kind = "bitwise"
) -> Relation:
    """The same tokens in physical pages of another order.

    Args:
        caches: inputs with the pages along ``block_axis``.
        table: the input with page numbers, any integer type.
    """

    def transform(inputs: Inputs) -> Inputs:
        blocks = inputs[caches[0]].shape[block_axis]
        order = _derangement(blocks, seed)
        place = torch.empty_like(order)
        place[order] = torch.arange(blocks)
        moved: Inputs = {
            name: own_strides(
                inputs[name], inputs[name].index_select(block_axis, order.to(inputs[name].device))
            )
            for name in caches
        }
        pages = inputs[table]
        moved[table] = place.to(pages.device)[pages.long()].to(pages.dtype)
        return inputs | moved

    return Relation("page permutation", kind, transform)


def _derangement(count: int, seed: int) -> torch.Tensor:
    """A random order of ``count`` pages in which none keeps its place."""
    if count < 2:
        raise CannotRun("there is one physical page: nothing to permute")
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    order = torch.empty_like(shuffled)
    order[shuffled] = shuffled.roll(1)
    return order


def pad(
    names: Sequence[str],
    axis: int,
    rows: int,
    *,
    side: Literal["front", "back"] = "front",
    fill: float = 0.0,
    kind: Kind = "bitwise",
) -> Relation:
    """``rows`` more rows of ``fill`` on ``axis`` of the named inputs; the output rows that belong to
    them are dropped, on the same axis of every output."""

    def run(trial: Trial) -> Iterator[Pair]:
        inputs = trial.inputs()
        padded = inputs | {name: _padded(inputs[name], axis, rows, side, fill) for name in names}
        found = trial.call(padded)
        start = rows if side == "front" else 0
        kept = {
            name: t.narrow(axis, start, t.shape[axis] - rows).contiguous()
            for name, t in found.items()
        }
        yield Pair(trial.output, kept)

    return Relation(f"{rows} rows of padding, {side}", kind, run=run)


def _padded(
    tensor: torch.Tensor, axis: int, rows: int, side: Literal["front", "back"], fill: float
) -> torch.Tensor:
    shape = list(tensor.shape)
    shape[axis] = rows
    block = torch.full(shape, fill, dtype=tensor.dtype, device=tensor.device)
    return torch.cat([block, tensor] if side == "front" else [tensor, block], dim=axis)


def choose(name: str, kind: Kind = "bitwise", **changes: Any) -> Relation:
    """Another choice that must not matter, by keyword arguments: a split, a partition, a hint."""
    return Relation(name, kind, lambda inputs: inputs | changes)


def poison_around(
    names: Sequence[str] = (), *, byte: int = 0xFF, kind: Kind = "bitwise"
) -> Relation:
    """Every named tensor (all of them by default) between margins full of ``byte``, which reads as
    NaN in every float format: the output stays, and so do the margins."""

    def run(trial: Trial) -> Iterator[Pair]:
        inputs = trial.inputs()
        chosen = names or [n for n, v in inputs.items() if isinstance(v, torch.Tensor)]
        guards = {name: Guarded(inputs[name], byte) for name in chosen}
        found = trial.call(inputs | {name: guard.inner for name, guard in guards.items()})
        yield Pair(trial.output, found)
        if written := [name for name, guard in guards.items() if guard.is_touched()]:
            raise RelationBroken(f"memory around {', '.join(written)} was written")

    return Relation("poison around the inputs", kind, run=run)


def poison_pages(
    caches: Sequence[str],
    table: str,
    lengths: str,
    *,
    block_axis: int = 0,
    byte: int = 0xFF,
    kind: Kind = "bitwise",
) -> Relation:
    """Every position of a paged cache that no sequence owns holds ``byte`` (NaN in every float
    format, E4M3 included).

    Args:
        caches: inputs with pages along ``block_axis`` and positions on the axis behind it.
        table: [sequences, pages], the page numbers. lengths: [sequences], live positions.
    """

    def transform(inputs: Inputs) -> Inputs:
        changed: Inputs = {}
        for name in caches:
            cache = inputs[name]
            free = unowned_positions(
                cache.shape[block_axis], cache.shape[block_axis + 1], inputs[table], inputs[lengths]
            )
            if not free.any():
                raise CannotRun("sequences own every position of the cache: nothing to poison")
            copy = own_strides(cache, cache)
            words = copy.movedim((block_axis, block_axis + 1), (0, 1)).view(torch.uint8)
            words[free.to(copy.device)] = byte
            changed[name] = copy
        return inputs | changed

    return Relation("poison of unowned pages", kind, transform)


def other_stream(kind: Kind = "bitwise") -> Relation:
    """The call on a stream of its own while the default stream runs the same call."""

    def run(trial: Trial) -> Iterator[Pair]:
        first, second = trial.inputs(), trial.inputs()
        _need_cuda(first)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            aside = trial.raw(first)
        beside = trial.raw(second)
        torch.cuda.synchronize()
        yield Pair(trial.output, on_host(aside), "on a stream of its own")
        yield Pair(trial.output, on_host(beside), "on the default stream beside it")

    return Relation("two streams", kind, run=run)


def graph_replay(
    change: Callable[[Inputs], Inputs] | None = None, kind: Kind = "bitwise"
) -> Relation:
    """A captured CUDA graph against eager calls.

    Args:
        change: gives other inputs of the same shapes, for example with shorter lengths: the graph
            is replayed on them, and then on the first ones again. What is no tensor must not
            change, because a graph keeps it.
    """

    def run(trial: Trial) -> Iterator[Pair]:
        fixed = trial.inputs()
        _need_cuda(fixed)
        graph, captured = _capture(trial, fixed)
        yield Pair(trial.output, _replay(graph, captured), "replay")
        if change is None:
            return
        changed = change(trial.inputs())
        eager = trial.call(change(trial.inputs()))
        _copy_into(fixed, changed)
        yield Pair(eager, _replay(graph, captured), "replay with changed inputs")
        _copy_into(fixed, trial.inputs())
        yield Pair(trial.output, _replay(graph, captured), "replay with the first inputs again")

    return Relation("graph replay", kind, run=run)


def shorten(name: str, divisor: int = 2) -> Callable[[Inputs], Inputs]:
    """A change for :func:`graph_replay`: the integer lengths ``name`` divided, at least 1."""
    return lambda inputs: inputs | {name: (inputs[name] // divisor).clamp_min(1)}


def _need_cuda(inputs: Inputs) -> None:
    if not any(isinstance(v, torch.Tensor) and v.device.type == "cuda" for v in inputs.values()):
        raise CannotRun("needs a CUDA device: no input lies on one")


def _capture(trial: Trial, fixed: Inputs) -> tuple[torch.cuda.CUDAGraph, Outputs]:
    """A graph of one call on ``fixed``, warmed up on a stream of its own as torch asks."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        trial.raw(fixed)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = trial.raw(fixed)
    return graph, captured


def _replay(graph: torch.cuda.CUDAGraph, captured: Outputs) -> Outputs:
    graph.replay()
    torch.cuda.synchronize()
    return on_host(captured)


def _copy_into(fixed: Inputs, values: Inputs) -> None:
    for name, value in values.items():
        target = fixed[name]
        if not isinstance(target, torch.Tensor):
            if target != value:
                raise ArgumentError(
                    "a graph keeps what is no tensor", where=name, found=value, allowed=target
                )
            continue
        if target.shape != value.shape or target.dtype != value.dtype:
            raise ArgumentError(
                "a graph keeps shapes and dtypes",
                where=name,
                found=f"{value.dtype} {list(value.shape)}",
                allowed=f"{target.dtype} {list(target.shape)}",
            )
        target.copy_(value)
