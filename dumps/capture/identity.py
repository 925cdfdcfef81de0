"""Provenance without a trace: inputs are what a module was called with, recognised by identity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch

from verify.dumps.capture.storages import Ancestry, StorageTable, merge
from verify.dumps.format.schema import Input


@dataclass(frozen=True, slots=True)
class Call:
    """The call that a tensor came out of: tensors that went in, names of weights it owns, and
    whether it may have read anything else."""

    operands: tuple[torch.Tensor, ...] = ()
    weights: tuple[str, ...] = ()
    hidden: bool = False


def module_call(
    path: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Call:
    """The call of a module. What it reads is known when it has no children and no tensors beside
    its weights, and is given nothing but tensors and plain values: not a cache, for example."""
    operands: list[torch.Tensor] = []
    plain = _collect([*args, *kwargs.values()], operands)
    own = [*module.named_parameters(), *module.named_buffers()]
    state = (value for name, value in vars(module).items() if name not in _MODULE_FIELDS)
    hidden = not plain or any(True for _ in module.children())
    hidden = hidden or any(isinstance(value, torch.Tensor) for value in state)
    prefix = f"{path}." if path else ""
    return Call(tuple(operands), tuple(prefix + name for name, _ in own), hidden)


_MODULE_FIELDS = frozenset(vars(torch.nn.Module()))
_PLAIN = (NoneType, bool, int, float, str, torch.dtype, torch.device)


def _collect(values: Iterable[Any], found: list[torch.Tensor]) -> bool:
    """Add the tensors among ``values``, however nested; False when anything else may hold some."""
    plain = True
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, Mapping):
            plain &= _collect(value.values(), found)
        elif isinstance(value, list | tuple):
            plain &= _collect(value, found)
        else:
            plain &= isinstance(value, _PLAIN)
    return plain


class Identity:
    """The cheap alternative to the Tracer: exact where an operand is a recorded tensor or a
    weight, ``unknown`` elsewhere, so that nothing unseen is ever taken for an origin."""

    collectives = 0

    def __init__(self, table: StorageTable) -> None:
        self.table = table
        self.active = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def explain(self, tensor: torch.Tensor, call: Call | None) -> Ancestry:
        """Ancestry of a tensor that is about to be recorded."""
        if call is None:
            return Ancestry.of(Input(kind="unknown"))
        weights = [Ancestry.of(Input(kind="weight", name=name)) for name in call.weights]
        hidden = [Ancestry.of(Input(kind="unknown"))] if call.hidden else []
        return merge([*map(self._operand, call.operands), *weights, *hidden])

    def _operand(self, tensor: torch.Tensor) -> Ancestry:
        found = self.table.recorded(tensor)
        if found is not None:
            return Ancestry.of(Input(kind="record", seq=found.seq))
        memory = self.table.find(tensor)
        known = memory.ancestry(tensor) if memory else None
        if known is not None and all(source.kind == "weight" for source in known.inputs):
            return known
        return Ancestry.of(Input(kind="unknown"))

    def name_value(self, tensor: torch.Tensor, name: str | None = None) -> Ancestry:
        """Values from outside are not followed without a trace."""
        return Ancestry.of(Input(kind="unknown", name=name))
