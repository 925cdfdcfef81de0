"""Provenance: from which recorded tensors, weights and outside values a tensor was computed.

A dispatch mode sees every ATen operation below the model and passes the ancestry of the operands
on to the results. It computes nothing itself: the operation runs as it was called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Protocol, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from verify.dumps.capture.identity import Call
from verify.dumps.capture.storages import (
    NOTHING,
    Ancestry,
    Memory,
    StorageTable,
    fills,
    merge,
    place,
)
from verify.dumps.capture.tensor_words import tensor_digest
from verify.dumps.format.schema import Input


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


# Results depend on the shape of the operand, not on its values.
_SHAPE_ONLY = _aten("zeros_like ones_like full_like new_zeros new_ones new_full")
# Memory that something has yet to write to. A kernel launched past the dispatcher does so unseen,
# so this is not "nothing": it stays unknown until an operation seen here replaces all of it.
UNWRITTEN = _aten("empty empty_like empty_strided empty_permuted new_empty new_empty_strided")
# The very same values at the very same place: nothing to note.
_PASSING = _aten("detach alias lift_fresh lift")
# In-place operations after which nothing of the old values is left.
_OVERWRITING = _aten("copy_ zero_ fill_")


@dataclass(frozen=True, slots=True)
class _Op:
    """What the tracer needs to know about an operation."""

    name: str
    passing: bool
    shape_only: bool
    overwriting: bool
    unknown: bool
    collective: bool
    written: tuple[tuple[int, str], ...]
    """Position and name of the operands that it writes to."""


def _describe(func: Any) -> _Op:
    if not hasattr(func, "_schema"):  # a higher-order operator, for example flex attention
        return _Op(str(func), False, False, False, False, False, ())
    name = str(func.overloadpacket)
    arguments = func._schema.arguments
    written = tuple(
        (index, argument.name)
        for index, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    seeded = torch.Tag.nondeterministic_seeded in func.tags
    dropout = any("dropout" in argument.name for argument in arguments)
    out_variant = any(argument.is_out for argument in arguments)
    return _Op(
        name=name,
        passing=name in _PASSING,
        shape_only=name in _SHAPE_ONLY,
        overwriting=name in _OVERWRITING or out_variant,
        # Fused attention carries the tag for its dropout, which models in eval mode do not use.
        unknown=name in UNWRITTEN or (seeded and not dropout),
        collective=name.startswith(("c10d.", "_c10d_functional.")),
        written=written,
    )


def tensors_among(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among ``values`` and in lists and tuples there."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_among(value)
    return found


def _spelled(op: _Op, kwargs: dict[str, Any]) -> str:
    """Name of the operation; a cast is named with the dtype that it casts to."""
    dtype = kwargs.get("dtype")
    if op.name == "aten._to_copy" and dtype is not None:
        return f"{op.name}[{str(dtype).removeprefix('torch.')}]"
    return op.name


def _targets(op: _Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Tensors that the operation writes to."""
    written = (args[i] if i < len(args) else kwargs.get(name) for i, name in op.written)
    return tensors_among(written)


def has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


class OpWatcher(Protocol):
    """Who is shown operations, before and after they run."""

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """None: the operation is of no interest; else something to hand to ``after``."""

    def after(self, call: Any, result: Any) -> None: ...


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the ancestry of every storage up to date while it is entered.

    ``watcher`` is shown every operation, also while the tracer is not ``active``.
    """

    supports_higher_order_operators = True

    def __init__(self, table: StorageTable, watcher: OpWatcher | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.watcher = watcher
        self.collectives = 0
        self.active = True
        """False outside of the window of a capture: operations pass, collectives are counted."""
        self._ops: dict[Any, _Op] = {}
        self._thread = 0

    def __enter__(self) -> Self:
        self._thread = get_ident()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """Dispatch modes belong to a thread: in another one there is nothing to leave."""
        if get_ident() == self._thread:
            super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.active = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Operations inside are the capture's own and leave no trace."""
        with torch._C._DisableTorchDispatch():
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        call = None if self.watcher is None else self.watcher.before(func, args, kwargs)
        result = self._follow(func, args, kwargs)
        if self.watcher is not None and call is not None:
            self.watcher.after(call, result)
        return result

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        op = self._ops.get(func)
        if op is None:
            op = self._ops[func] = _describe(func)
        if op.passing or not self.active:
            self.collectives += op.collective
            return func(*args, **kwargs)
        ancestry = self._ancestry_of_result(op, args, kwargs)
        result = func(*args, **kwargs)
        if op.written:
            for tensor in _targets(op, args, kwargs):
                self._write(tensor, ancestry, replaced=op.overwriting and fills(tensor))
        elif isinstance(result, torch.Tensor):
            self._note(result, ancestry)
        else:
            for tensor in tensors_among([result]):
                self._note(tensor, ancestry)
        self.collectives += op.collective
        return result

    def _ancestry_of_result(
        self, op: _Op, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Ancestry:
        name = _spelled(op, kwargs)
        if op.unknown:
            return merge([Ancestry.of(Input(kind="unknown", name=name))], name)
        if op.shape_only:
            return Ancestry({}, {name: None})
        operands = tensors_among([*args, *kwargs.values()] if kwargs else args)
        if op.overwriting:
            targets = _targets(op, args, kwargs)
            replaced = {id(tensor) for tensor in targets if fills(tensor)}
            operands = [tensor for tensor in operands if id(tensor) not in replaced]
        sources = [self.ancestry(tensor) for tensor in operands]
        if len(sources) == 1 and name in sources[0].ops:
            return sources[0]
        return merge(sources, name)

    def ancestry(self, tensor: torch.Tensor) -> Ancestry:
        """Ancestry of ``tensor``; one that nobody computed here is a value from outside."""
        if not has_storage(tensor):
            return Ancestry.of(Input(kind="unknown", name=f"{tensor.layout} tensor"))
        memory = self.table.find(tensor)
        found = memory.ancestry(tensor) if memory else None
        return found if found is not None else self.name_value(tensor)

    def explain(self, tensor: torch.Tensor, call: Call | None) -> Ancestry:
        """Ancestry of a tensor that is about to be recorded; the trace knows, not the call."""
        return self.ancestry(tensor)

    def name_value(self, tensor: torch.Tensor, name: str | None = None) -> Ancestry:
        """Enter a tensor from outside under its name, unless it is known already."""
        memory = self.table.get(tensor)
        found = memory.ancestry(tensor)
        if found is None:
            found = NOTHING
            if tensor.numel():
                name = name or f"{tensor.dtype}{list(tensor.shape)}".removeprefix("torch.")
                with self.paused():
                    digest = tensor_digest(tensor, name)
                value = Input(kind="value", name=name, digest=digest)
                found = Ancestry.of(value)
            memory.places[place(tensor)] = found
        return found

    def _note(self, tensor: torch.Tensor, ancestry: Ancestry) -> None:
        """Enter a result: a new storage, or a view into a known one."""
        if not has_storage(tensor):
            return
        memory = self.table.find(tensor)
        if memory is None:
            self.table.get(tensor).whole = ancestry
        else:
            memory.places.setdefault(place(tensor), ancestry)

    def _write(self, tensor: torch.Tensor, ancestry: Ancestry, *, replaced: bool) -> None:
        """Enter an in-place change. Other views may overlap, so all of the storage may depend on
        it, unless the change replaced everything."""
        memory = self.table.get(tensor)
        if replaced:
            memory.whole = ancestry
        else:
            memory.whole = merge([*_known(memory), ancestry])
        memory.places.clear()


def _known(memory: Memory) -> list[Ancestry]:
    before = [] if memory.whole is None else [memory.whole]
    return [*before, *memory.places.values()]
