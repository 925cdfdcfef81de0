"""Two logs of operations, aligned as far as they can be: the second under the names of the first.

The longest sequence of operations that both logs have in this order is found on name, depth and
shapes; what is left stands in one log alone and is listed as that.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.taps.view import Presented, View, renamed
from verify.taps.words import Making

_LOGS = ("debug-mode",)
"""Formats whose taps are numbered in the order of execution (docs/importers.md)."""
Key = tuple[str, int, str]


def align_logs(a: Dump, b: Dump) -> Dump:
    """``b``, with the operations that it shares with ``a`` under their names in ``a``; as it is where
    the two are no logs."""
    if not (_is_log(a) and _is_log(b)):
        return b
    keys_a, keys_b = _operations(a), _operations(b)
    numbers = dict(_matches(keys_a, keys_b))
    presented = []
    for record in b.records():
        tap = _name(record, numbers)
        making = Making((b.holder(record),))
        presented.append(Presented(renamed(record, tap=tap), making))
    moved = sum(mine != other for other, mine in numbers.items())
    notes = []
    if len(keys_a) != len(keys_b) or len(numbers) != len(keys_b) or moved:
        notes.append(
            f"the logs were aligned on name, depth and shapes: {len(numbers)} operations in common, "
            f"{len(keys_a) - len(numbers)} in A alone, {len(keys_b) - len(numbers)} in B alone"
        )
    return View(b, b.manifest, presented, notes)


def _is_log(dump: Dump) -> bool:
    source = dump.manifest.capture.get("source")
    return isinstance(source, dict) and source.get("format") in _LOGS


def _operations(dump: Dump) -> dict[int, Key]:
    """Number of every operation in its log -> what two runs of it have in common."""
    found: dict[int, Key] = {}
    for record in dump.records():
        about = record.attributes
        key = (str(about.get("op")), int(about.get("depth", 0)), str(about.get("shapes")))
        found.setdefault(int(about["call"]), key)
    return found


def _matches(a: dict[int, Key], b: dict[int, Key]) -> Iterator[tuple[int, int]]:
    """Pairs (number in B, number in A), ascending in both."""
    numbers_a, numbers_b = [*a], [*b]
    # Without autojunk: an operation that occurs often is no noise here.
    matcher = SequenceMatcher(None, [*a.values()], [*b.values()], autojunk=False)
    for start_a, start_b, size in matcher.get_matching_blocks():
        yield from zip(
            numbers_b[start_b : start_b + size], numbers_a[start_a : start_a + size], strict=True
        )


def _name(record: Record, numbers: dict[int, int]) -> str:
    """The tap with the number of the operation in A; one that A lacks is said to be of B."""
    _, _, rest = record.tap.partition(".")
    number = numbers.get(int(record.attributes["call"]))
    return f"{number:05d}.{rest}" if number is not None else f"{record.tap} (B alone)"
