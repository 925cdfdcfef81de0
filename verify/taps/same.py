"""Taps of one run that hold the very same tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from verify.dumps.format import Dump


class SameTensors:
    """Which taps share their tensors, record by record: a module's output is often its parent's
    output and the next one's input as well, and a dump holds it once."""

    def __init__(self, dump: Dump) -> None:
        self._tensors: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._taps: dict[tuple[int, int], set[str]] = defaultdict(set)
        for record in dump.records():
            tensor = (record.rank, record.seq if record.same_as is None else record.same_as)
            self._tensors[record.tap].add(tensor)
            self._taps[tensor].add(record.tap)

    def held_by(self, tap: str, others: Collection[str]) -> str | None:
        """One of ``others`` if every tensor of the tap stands at one of them too; else None."""
        names = set(others) - {tap}
        shared = [self._taps[tensor] & names for tensor in self._tensors[tap]]
        return min(shared[0]) if shared and all(shared) else None
