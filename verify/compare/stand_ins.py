"""Records that hold a hash or statistics of a tensor instead of the tensor: equal ones prove nothing."""

from __future__ import annotations

from collections.abc import Iterable

from verify.compare.result import TapComparison, Unmatched
from verify.dumps.format.schema import Record
from verify.formats import get_format

ATTRIBUTE = "stands_for"
"""Key of a record's attributes: ``hash`` or ``statistics`` (docs/dump-format.md)."""

BY = "compared by "
"""How the reasons of :func:`not_proven` begin."""


def stands_for(record: Record) -> str:
    """What the record holds instead of a tensor; empty where it holds the tensor."""
    return str(record.attributes.get(ATTRIBUTE, ""))


def holds_floats(record: Record) -> bool:
    """Whether the record is a tensor of floating-point numbers, of which magnitudes can be judged."""
    return get_format(record.dtype).kind == "float" and not stands_for(record)


def not_proven(pairs: Iterable[tuple[Record, TapComparison]]) -> list[Unmatched]:
    """Equality at a tap that is not equality of its tensors, one entry for each thing kept.

    Args:
        pairs: a record of A at each tap, and what was found there.
    """
    found: dict[str, Unmatched] = {}
    for record, tap in pairs:
        kind, equal = stands_for(record), tap.rows - tap.differing_rows
        if not kind or not equal:
            continue
        kept = f"the hash {record.attributes.get('algorithm')}" if kind == "hash" else kind
        reason = f"{BY}{kept} alone: equal, which does not prove equal tensors"
        entry = Unmatched(side="a", tap=tap.tap, rows=0, example="its first", reason=reason)
        found.setdefault(reason, entry).rows += equal
    return list(found.values())
