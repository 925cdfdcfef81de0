"""Provenance without a trace: inputs are what a module was called with, recognised by identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from verify.dumps.capture.storages import Ancestry, StorageTable, merge, place
from verify.dumps.format.schema import Input


@dataclass(frozen=True, slots=True)
class Call:
    """The call that a tensor came out of: tensors that went in, and names of weights it owns."""

    operands: tuple[torch.Tensor, ...] = ()
    weights: tuple[str, ...] = ()


class Identity:
    """The cheap alternative to the Tracer: exact where an operand is a recorded tensor or a
    weight, ``unknown`` elsewhere, so that nothing unseen is ever taken for an origin."""

    collectives = 0

    def __init__(self, table: StorageTable) -> None:
        self.table = table

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def explain(self, tensor: torch.Tensor, call: Call | None) -> Ancestry:
        """Ancestry of a tensor that is about to be recorded."""
        if call is None:
            return Ancestry.of(Input(kind="unknown"))
        weights = [Ancestry.of(Input(kind="weight", name=name)) for name in call.weights]
        return merge([*map(self._operand, call.operands), *weights])

    def _operand(self, tensor: torch.Tensor) -> Ancestry:
        found = self.table.recorded(tensor)
        if found is not None:
            return Ancestry.of(Input(kind="record", seq=found.seq))
        memory = self.table.find(tensor)
        known = memory.ancestry(place(tensor)) if memory else None
        if known is not None and all(source.kind == "weight" for source in known.inputs):
            return known
        return Ancestry.of(Input(kind="unknown"))

    def name_value(self, tensor: torch.Tensor, name: str | None = None) -> Ancestry:
        """Values from outside are not followed without a trace."""
        return Ancestry.of(Input(kind="unknown", name=name))
