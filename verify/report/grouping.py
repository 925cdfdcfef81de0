"""Parts of a result put together by what they have in common, in the order of the result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class _Sequenced(Protocol):
    @property
    def sequence(self) -> str: ...


Item = TypeVar("Item", bound=_Sequenced)


def by_sequence(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Sequence id -> its items."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.sequence, []).append(item)
    return groups
