"""Two logs of operations, aligned as far as they can be: the second under the names of the first.

The longest sequence of operations that both logs have in this order is found on name, depth and
shapes; what is left stands in one log alone and is listed as that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.errors import NotComparableError
from verify.taps.view import Presented, View, renamed
from verify.taps.words import Making

_LOGS = ("debug-mode",)
"""Formats whose taps are numbered in the order of execution (docs/importers.md)."""
_CELLS = 60_000_000
"""Pairs of operations in the table of an alignment, 4 bytes each."""


@dataclass(frozen=True, slots=True)
class Operation:
    """``key``: name, depth and shapes; two runs of an operation agree in it. ``hashes``: digests of
    what was logged of it."""

    key: tuple[str, int, str]
    hashes: tuple[int, ...]


def align_logs(a: Dump, b: Dump) -> Dump:
    """``b``, with the operations that it shares with ``a`` under their names in ``a``; as it is where
    the two are no logs."""
    if not (_is_log(a) and _is_log(b)):
        return b
    operations_a, operations_b = _operations(a), _operations(b)
    numbers = dict(_matches(operations_a, operations_b))
    presented = []
    for record in b.records():
        tap = _name(record, numbers)
        making = Making((b.holder(record),))
        presented.append(Presented(renamed(record, tap=tap), making))
    moved = sum(mine != other for other, mine in numbers.items())
    notes = []
    if len(operations_a) != len(operations_b) or len(numbers) != len(operations_b) or moved:
        notes.append(
            f"the logs were aligned on name, depth and shapes: {len(numbers)} operations in common, "
            f"{len(operations_a) - len(numbers)} in A alone, {len(operations_b) - len(numbers)} in B alone"
        )
    return View(b, b.manifest, presented, notes)


def _is_log(dump: Dump) -> bool:
    source = dump.manifest.capture.get("source")
    return isinstance(source, dict) and source.get("format") in _LOGS


def _operations(dump: Dump) -> dict[int, Operation]:
    """Number of every operation in its log -> what two runs of it have in common, and its hashes."""
    found: dict[int, Operation] = {}
    for record in dump.records():
        about = record.attributes
        key = (str(about.get("op")), int(about.get("depth", 0)), str(about.get("shapes")))
        call = int(about["call"])
        digest = int(dump.rows(record).digest[0])
        before = found[call].hashes if call in found else ()
        found[call] = Operation(key, (*before, digest))
    return found


def _matches(a: dict[int, Operation], b: dict[int, Operation]) -> Iterator[tuple[int, int]]:
    """Pairs (number in B, number in A), ascending in both: as many as there can be, and of those
    alignments one in which most hashes agree."""
    numbers_a, numbers_b = [*a], [*b]
    for i, j in match_operations([*a.values()], [*b.values()]):
        yield numbers_b[j], numbers_a[i]


def match_operations(x: list[Operation], y: list[Operation]) -> list[tuple[int, int]]:
    """Places (in x, in y) of a longest common subsequence; among several, one in which most hashes
    agree (where the logs are too long for that, the beginning and end that agree in their keys are
    matched first).

    Raises:
        NotComparableError: so much differs that the table of all pairs has no place in memory.
    """
    found = _trimmed(x, y, _same)
    if found is None:
        found = _trimmed(x, y, _same_key)
    if found is None:
        raise NotComparableError(
            "the logs have too little in common to be aligned",
            found=f"{len(x)} against {len(y)} operations",
            allowed=f"a product of at most {_CELLS:,} between a common beginning and end",
            hint="log a part of the model, or fewer steps",
        )
    return found


def _same(one: Operation, other: Operation) -> bool:
    return one == other


def _same_key(one: Operation, other: Operation) -> bool:
    return one.key == other.key


def _trimmed(
    x: list[Operation], y: list[Operation], same: Callable[[Operation, Operation], bool]
) -> list[tuple[int, int]] | None:
    """The matches, where beginning and end are matched as long as they are the same; None where what
    is between them is too long."""
    head = _common(x, y, same)
    tail = _common(x[head:][::-1], y[head:][::-1], same)
    inner_x, inner_y = x[head : len(x) - tail], y[head : len(y) - tail]
    if len(inner_x) * len(inner_y) > _CELLS:
        return None
    pairs = [(i, i) for i in range(head)]
    pairs += [(head + i, head + j) for i, j in _longest(inner_x, inner_y)]
    return pairs + [(len(x) - i, len(y) - i) for i in range(tail, 0, -1)]


def _common(
    x: list[Operation], y: list[Operation], same: Callable[[Operation, Operation], bool]
) -> int:
    """How many operations both begin with."""
    equal = (same(one, other) for one, other in zip(x, y, strict=False))
    return next((i for i, each in enumerate(equal) if not each), min(len(x), len(y)))


def _longest(x: list[Operation], y: list[Operation]) -> list[tuple[int, int]]:
    """A longest common subsequence, by the table of all pairs of prefixes, a row at a time."""
    keys, hashes = _codes(x, y, "key"), _codes(x, y, "hashes")
    match = min(len(x), len(y)) + 1  # one more pair outweighs all agreement of hashes
    best = np.zeros((len(x) + 1, len(y) + 1), np.int32)
    for i in range(len(x)):
        gain = (keys[1] == keys[0][i]) * (match + (hashes[1] == hashes[0][i]))
        np.maximum(best[i, 1:], best[i, :-1] + gain, out=best[i + 1, 1:])
        np.maximum.accumulate(best[i + 1], out=best[i + 1])
    found, i, j = [], len(x), len(y)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]


def _codes(x: list[Operation], y: list[Operation], field: str) -> list[NDArray[np.int32]]:
    """A field of the operations as numbers, equal where it is equal."""
    codes: dict[object, int] = {}
    return [
        np.array([codes.setdefault(getattr(each, field), len(codes)) for each in some], np.int32)
        for some in (x, y)
    ]


def _name(record: Record, numbers: dict[int, int]) -> str:
    """The tap with the number of the operation in A; one that A lacks is said to be of B."""
    _, _, rest = record.tap.partition(".")
    number = numbers.get(int(record.attributes["call"]))
    return f"{number:05d}.{rest}" if number is not None else f"{record.tap} (B alone)"
