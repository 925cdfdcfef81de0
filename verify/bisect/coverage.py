"""What one run holds and the other does not, and whether that is more than another length."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from verify.bisect.result import Finding
from verify.bisect.rules import Measured, Subject, decide
from verify.compare.index import PADDING, RowIndex
from verify.compare.result import Comparison, Unmatched
from verify.compare.run import RowComparison

_LISTED = 6


def state_incomplete(compared: RowComparison) -> list[Finding]:
    """What was not compared, apart from rows of another text."""
    comparison = compared.comparison
    lacking = comparison.unmatched
    partial = [
        f"{side} is a partial dump: its run did not come to its end"
        for side, complete in (("A", comparison.complete_a), ("B", comparison.complete_b))
        if not complete
    ]
    windows = [
        f"{side} holds a window of its run ({window}): nothing outside of it was compared"
        for side, window in (("A", comparison.window_a), ("B", comparison.window_b))
        if window
    ]
    if not lacking and not partial and not windows:
        return []
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.ROWS)),
            title=_title(compared)
            or _window_title(comparison)
            or "Not everything could be compared",
            reasons=[*partial, *windows, *fold_unmatched(lacking)[:_LISTED]],
            taps=list(dict.fromkeys(u.tap for u in lacking))[:_LISTED],
            numbers={
                "rows compared": comparison.rows,
                "rows without a counterpart": sum(u.rows for u in lacking),
            },
            settle=_settle(compared),
        )
    ]


def _window_title(comparison: Comparison) -> str:
    """Where windows are all that limits the comparison."""
    if comparison.unmatched or not (comparison.complete_a and comparison.complete_b):
        return ""
    if comparison.window_a == comparison.window_b:
        return f"A window of the runs was compared, and no more ({comparison.window_a})"
    return "A window of the runs was compared, and no more"


def _title(compared: RowComparison) -> str:
    """What is missing, where it is of one kind; empty where it is not."""
    if compared.comparison.window_a or compared.comparison.window_b:
        return ""
    if not (compared.comparison.complete_a and compared.comparison.complete_b):
        return ""
    alone = _alone(compared)
    rows = sum(len(entries) for _, _, _, entries in alone)
    if 2 * rows < sum(u.rows for u in compared.comparison.unmatched) or len(alone) != 1:
        return ""
    ((side, index, other, entries),) = alone
    opposite = "B" if side == "A" else "A"
    extra = np.setdiff1d(index.sequence[entries], other.sequence)
    if np.isin(index.sequence[entries], extra).all():
        many = "1 sequence" if len(extra) == 1 else f"{len(extra)} sequences"
        return f"{side} ran {many} more than {opposite}"
    if _is_behind(index, other, entries):
        steps = len(np.unique(index.records.step[index.record[entries]]))
        many = "1 step" if steps == 1 else f"{steps} steps"
        return f"{opposite} stopped earlier: {side} went on for {many}"
    return ""


def _alone(
    compared: RowComparison,
) -> list[tuple[str, RowIndex, RowIndex, NDArray[np.int64]]]:
    """The sides that hold rows which the other side does not."""
    x = compared.alignment
    sides = (("A", x.a, x.b, x.alone_a), ("B", x.b, x.a, x.alone_b))
    return [side for side in sides if side[3].size]


def _is_behind(index: RowIndex, other: RowIndex, entries: NDArray[np.int64]) -> bool:
    """Whether these rows lie after the last position of the other run, in sequences of both."""
    named = other.sequence != PADDING
    last = np.full(len(other.sequences) + 1, -1, np.int64)
    np.maximum.at(last, other.sequence[named], other.position[named])
    positions, limits = index.position[entries], last[index.sequence[entries]]
    # A tensor without a position is computed once a step, so more often in a longer run.
    return bool(((positions > limits) | (positions < 0)).all())


def _settle(compared: RowComparison) -> list[str]:
    if not _title(compared):
        return []
    return ["--accept INCOMPLETE, if the rows of both runs are all that you ask about"]


def fold_unmatched(unmatched: list[Unmatched]) -> list[str]:
    """One line for each side and reason, however many taps share it."""
    groups: dict[tuple[str, str], list[Unmatched]] = defaultdict(list)
    for entry in unmatched:
        groups[entry.side, entry.reason].append(entry)
    return [_fold(side, reason, entries) for (side, reason), entries in groups.items()]


def _fold(side: str, reason: str, entries: list[Unmatched]) -> str:
    taps = Counter({entry.tap: entry.rows for entry in entries})
    where = next(iter(taps))
    more = f" and {len(taps) - 1} more taps" if len(taps) > 1 else ""
    rows = f"{taps.total():,} rows of {side.upper()}"
    return f"{rows} ({where}{more}; {entries[0].example}): {reason}"
