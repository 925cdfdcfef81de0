"""What is known about the memory that tensors live in, for as long as it lives.

A tensor is recognised by its storage and its place there. Storages are held by weak references,
so that nothing is kept alive, and a freed storage can never be mistaken for a new one: while the
weak reference exists, its address is not given to another storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from verify.dumps.capture.tensor_words import tensor_digest
from verify.dumps.format.schema import Input

Place = tuple[int, torch.Size, tuple[int, ...], torch.dtype]
"""Where a tensor lies in its storage, and how: offset, shape, strides, dtype."""


def place(tensor: torch.Tensor) -> Place:
    offset, strides = tensor.storage_offset(), tensor.stride()
    return (offset, tensor.shape, strides, tensor.dtype)  # type: ignore[return-value]


def fills(tensor: torch.Tensor) -> bool:
    """Whether the tensor is all of its storage, each element once."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def version(tensor: torch.Tensor) -> int | None:
    """Count of in-place changes; None for inference tensors, which do not count them."""
    return None if tensor.is_inference() else tensor._version


def _content(tensor: torch.Tensor) -> str:
    return tensor_digest(tensor, "an inference tensor")


@dataclass(frozen=True, slots=True)
class Ancestry:
    """What a tensor was computed from: nearest recorded inputs, and the operations since then.
    Both are ordered sets."""

    inputs: dict[Input, None]
    ops: dict[str, None]

    @classmethod
    def of(cls, source: Input) -> Ancestry:
        return cls({source: None}, {})


NOTHING = Ancestry({}, {})


def merge(sources: Iterable[Ancestry], op: str | None = None) -> Ancestry:
    """Ancestry of the result of ``op`` on tensors with these ancestries."""
    inputs: dict[Input, None] = {}
    ops: dict[str, None] = {}
    for source in sources:
        inputs.update(source.inputs)
        ops.update(source.ops)
    if op is not None:
        ops[op] = None
    return Ancestry(inputs, ops)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A tensor as it was when it was recorded.

    ``content`` is the digest of its bits, kept only where no version counts in-place changes.
    """

    seq: int
    step: int
    axes: str
    version: int | None
    content: str | None = None


@dataclass(slots=True)
class Memory:
    """One storage: the ancestry of all of it, of known places in it, and what was recorded."""

    ref: StorageWeakRef
    whole: Ancestry | None = None
    places: dict[Place, Ancestry] = field(default_factory=dict)
    recorded: dict[Place, Recorded] = field(default_factory=dict)

    def ancestry(self, tensor: torch.Tensor) -> Ancestry | None:
        found = self.places.get(place(tensor)) if self.places else None
        return self.whole if found is None else found


class StorageTable:
    """All storages of interest, by identity."""

    def __init__(self) -> None:
        self._memories: dict[int, Memory] = {}

    def find(self, tensor: torch.Tensor) -> Memory | None:
        return self._memories.get(tensor.untyped_storage()._cdata)

    def get(self, tensor: torch.Tensor) -> Memory:
        storage = tensor.untyped_storage()
        memory = self._memories.get(storage._cdata)
        if memory is None:
            memory = Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            self._memories[storage._cdata] = memory
        return memory

    def recorded(self, tensor: torch.Tensor) -> Recorded | None:
        """The record of exactly this tensor: same memory and place, unchanged since then."""
        memory = self.find(tensor)
        found = memory.recorded.get(place(tensor)) if memory and memory.recorded else None
        if found is None or found.version != version(tensor):
            return None
        return found if found.version is not None or found.content == _content(tensor) else None

    def mark(self, tensor: torch.Tensor, seq: int, step: int, axes: str) -> None:
        """Note that ``tensor`` is in the dump: what is computed from it has it as its input."""
        memory, at = self.get(tensor), place(tensor)
        count = version(tensor)
        content = _content(tensor) if count is None else None
        memory.recorded[at] = Recorded(seq, step, axes, count, content)
        self.stand_for(tensor, seq)

    def stand_for(self, tensor: torch.Tensor, seq: int) -> None:
        """Let record ``seq`` be the input of all that is computed from ``tensor``."""
        memory, at = self.get(tensor), place(tensor)
        ancestry = Ancestry.of(Input(kind="record", seq=seq))
        if fills(tensor):
            memory.whole, memory.places = ancestry, {}
        else:
            memory.places[at] = ancestry

    def name_weight(self, tensor: torch.Tensor, name: str) -> None:
        """Note that ``tensor`` is the parameter or buffer ``name`` (tied ones have several)."""
        memory, at = self.get(tensor), place(tensor)
        names = Ancestry.of(Input(kind="weight", name=name))
        memory.whole = merge([memory.whole or NOTHING, names])
        if not fills(tensor):  # one of several weights in a shared piece of memory
            memory.places[at] = merge([memory.places.get(at) or NOTHING, names])

    def forget_recorded(self, tensor: torch.Tensor) -> None:
        """The memory of ``tensor`` was written to by an operation that has not returned yet: the
        version counter does not show it before then."""
        memory = self.find(tensor)
        if memory is not None:
            memory.recorded.clear()

    def forget_all(self) -> None:
        """Drop everything: nobody saw what was computed since."""
        self._memories.clear()

    def forget_freed(self) -> None:
        """Drop what is known about storages that no longer exist."""
        freed = [key for key, memory in self._memories.items() if memory.ref.expired()]  # type: ignore[no-untyped-call]
        for key in freed:
            del self._memories[key]
