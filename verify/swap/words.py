"""Sets of exchanged members, and the outcome, in words."""

from __future__ import annotations

from collections.abc import Sequence


def shown(taps: frozenset[str], order: Sequence[str]) -> str:
    """A set in words: a prefix of the order, or its members."""
    if not taps:
        return "nothing"
    if len(taps) > 3 and frozenset(order[: len(taps)]) == taps:
        return f"everything up to {order[len(taps) - 1]}"
    members = [tap for tap in order if tap in taps]
    if len(members) > 3:
        head = 0
        while head < len(members) and members[head] == order[head]:
            head += 1
        if head > 1:
            return f"everything up to {order[head - 1]}, and {', '.join(members[head:])}"
    return ", ".join(members[:4]) + (f" and {len(members) - 4} more" if len(members) > 4 else "")


def summary(undo: list[str] | None, cause: list[str] | None, confirmed: bool, flips: bool) -> str:
    what = "the flip" if flips else "the difference of the logits"
    if undo is None:
        return f"No small set moves {what} across."
    sure = "confirmed in reverse and repeated" if confirmed else "not confirmed in reverse"
    if cause is None or cause == undo:
        return f"{', '.join(undo)}: taken from the other run, {what} moves across ({sure})."
    return (
        f"Taking {', '.join(undo)} from A undoes {what} in B; causing it in A takes "
        f"{', '.join(cause)} of B ({sure})."
    )
