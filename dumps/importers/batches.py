"""Flat batches of serving engines: whose token at which position every row of a step is."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format.schema import Sequence
from verify.dumps.hf.prompts import name_sequences


@dataclass(slots=True)
class Batch:
    """The tokens of one step, one request behind the other."""

    positions: NDArray[np.int64]
    owners: list[str | None]
    last: list[int]
    """Place of the last token of every request."""

    @property
    def tokens(self) -> int:
        return len(self.positions)

    @property
    def requests(self) -> int:
        return len(self.last)

    @property
    def last_positions(self) -> NDArray[np.int64]:
        return self.positions[self.last]

    @property
    def last_owners(self) -> list[str | None]:
        return [self.owners[at] for at in self.last]

    def padded(self, rows: int) -> tuple[NDArray[np.int64], list[str | None]]:
        """Positions and owners of ``rows`` rows, of which those behind the tokens are padding."""
        more = rows - self.tokens
        return np.append(self.positions, np.full(more, -1)), [*self.owners, *[None] * more]


@dataclass(slots=True)
class _Request:
    prompt: dict[int, int] = field(default_factory=dict)
    generated: dict[int, int] = field(default_factory=dict)
    name: str = ""


@dataclass(slots=True)
class Batches:
    """Batches of all steps, from what the engine fed. A request is known by its id, else by its place
    in the memory pool, else by its place in the batch; it is named by its prompt as in any run."""

    steps: dict[int, Batch] = field(default_factory=dict)
    sequences: list[Sequence] = field(default_factory=list)
    _fed: dict[int, dict[str, Any]] = field(default_factory=dict)

    def enter(self, step: int, name: str, value: Any) -> None:
        """What was fed in a step: ``input_ids``, ``positions``, ``seq_lens`` (or ``rids``, ...)."""
        self._fed.setdefault(step, {}).setdefault(name, value)

    def finish(self) -> None:
        """Name the sequences, once all steps are entered."""
        requests: dict[object, _Request] = {}
        every: list[_Request] = []
        cut: dict[int, tuple[NDArray[np.int64], list[tuple[int, int, _Request]]]] = {}
        for step, fed in sorted(self._fed.items()):
            ids, positions = _numbers(fed.get("input_ids")), _numbers(fed.get("positions"))
            if ids is None or positions is None or len(ids) > len(positions):
                continue
            positions = positions[: len(ids)]
            segments = _segments(positions, _numbers(fed.get("seq_lens")))
            if segments is None:
                continue
            keys = _keys(fed, len(segments))
            parts = []
            for (start, stop), key in zip(segments, keys, strict=True):
                if positions[start] == 0 or key not in requests:
                    requests[key] = _Request()
                    every.append(requests[key])
                request = requests[key]
                begins = stop - start > 1 or not request.prompt
                into = request.prompt if begins else request.generated
                into.update(
                    zip(positions[start:stop].tolist(), ids[start:stop].tolist(), strict=True)
                )
                parts.append((start, stop, request))
            cut[step] = (positions, parts)
        self._name(every)
        for step, (positions, parts) in cut.items():
            owners: list[str | None] = []
            for start, stop, request in parts:
                owners += [request.name] * (stop - start)
            self.steps[step] = Batch(positions, owners, [stop - 1 for _, stop, _ in parts])

    def _name(self, requests: list[_Request]) -> None:
        prompts = [[request.prompt[at] for at in sorted(request.prompt)] for request in requests]
        self.sequences += name_sequences(prompts)
        for request, sequence in zip(requests, self.sequences, strict=True):
            request.name = sequence.id
            sequence.generated = [request.generated[at] for at in sorted(request.generated)]


def _numbers(value: Any) -> NDArray[np.int64] | None:
    """A list or tensor of integers as an array; None for anything else."""
    try:
        found = np.asarray(value if not hasattr(value, "numpy") else value.numpy())
    except (TypeError, ValueError):
        return None
    return found.astype(np.int64) if found.ndim == 1 and found.dtype.kind in "iu" else None


def _keys(fed: dict[str, Any], count: int) -> list[object]:
    for name in ("rids", "req_pool_indices"):
        value = fed.get(name)
        found = value if isinstance(value, list) else _numbers(value)
        if found is not None and len(found) >= count:
            return [str(each) for each in list(found)[:count]]
    return [*range(count)]


def _segments(
    positions: NDArray[np.int64], lengths: NDArray[np.int64] | None
) -> list[tuple[int, int]] | None:
    """Where the tokens of each request begin and end: positions count up inside of a request, and
    reach its length. None where the two contradict each other."""
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    if lengths is None:
        cuts = [0, *breaks.tolist(), len(positions)]
        return list(pairwise(cuts)) if len(positions) else None
    found, start = [], 0
    for length in lengths.tolist():
        stop = start
        while stop < len(positions) and positions[stop] != length - 1:
            stop += 1
        if stop >= len(positions):
            return None
        found.append((start, stop + 1))
        start = stop + 1
    return found if start == len(positions) and found else None
