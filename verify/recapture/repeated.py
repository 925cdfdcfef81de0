"""Whether a second pass gave the bits of the first: every row of the window that both recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verify.bisect.confounders import find_confounders
from verify.bisect.coverage import fold_unmatched
from verify.compare.index import RowIndex
from verify.compare.result import Unmatched
from verify.compare.run import RowComparison, compare_rows
from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.dumps.format.tokens import TOKENS_IN, TOKENS_OUT
from verify.dumps.window import Window
from verify.recapture.commands import Ran
from verify.recapture.result import Again, Unlike


def hold_against(first: Dump, second: Dump, side: str, ran: Ran) -> Again:
    """Compare the second pass of a run with its first, by the digests of its rows.

    Raises:
        CorruptDumpError: a dump is not what was stored.
    """
    compared = compare_rows(first, second)
    comparison = compared.comparison
    window = Window.of(second.manifest.capture)
    computed = [tap for tap in comparison.taps if tap.tap not in (TOKENS_IN, TOKENS_OUT)]
    return Again(
        side=side,
        command=ran.command,
        exit_code=ran.exit_code,
        path=str(second.path),
        steps=str(window.steps),
        bytes=second.total_bytes,
        first_bytes=first.total_bytes,
        rows=sum(tap.rows for tap in computed),
        taps=len(computed),
        unlike=_unlike(compared),
        lacking=fold_unmatched(_lacking(compared, window)),
        parted=compared.parted,
        changed=[
            f"{each.name}: {each.a} in the first pass, {each.b} in the second"
            for each in find_confounders(first, second)
        ],
    )


def _unlike(compared: RowComparison) -> list[Unlike]:
    x = compared.alignment
    differing = np.flatnonzero(compared.compared & (compared.measures.differing > 0))
    found: dict[str, Unlike] = {}
    for record, entries in _by_record(x.b, x.rows_b[differing]):
        where = f"step {record.step}, {x.b.name(int(entries[0]))}"
        unlike = found.setdefault(record.tap, Unlike(tap=record.tap, rows=0, first=where))
        unlike.rows += len(entries)
    return list(found.values())


def _by_record(
    index: RowIndex, entries: NDArray[np.int64]
) -> Iterator[tuple[Record, NDArray[np.int64]]]:
    """Entries by record, in order of execution."""
    entries = np.sort(entries)
    numbers, starts = np.unique(index.record[entries], return_index=True)
    for number, own in zip(numbers, np.split(entries, starts[1:]), strict=False):
        yield index.records[int(number)], own


def _lacking(compared: RowComparison, window: Window) -> list[Unmatched]:
    """Rows of the window without a counterpart, of taps that both passes recorded."""
    x = compared.alignment
    taps = {r.tap for r in x.a.records} & {r.tap for r in x.b.records}
    found: list[Unmatched] = []
    sides = (
        ("first", "second", x.a, _inside(x.a, x.alone_a, window)),
        ("second", "first", x.b, x.alone_b),
    )
    for one, other, index, entries in sides:
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for record, own in _by_record(index, entries):
            if record.tap in taps:
                counts[record.tap] += len(own)
                examples.setdefault(record.tap, index.name(int(own[0])))
        found += [
            Unmatched(
                side="a" if one == "first" else "b",
                tap=tap,
                rows=rows,
                example=examples[tap],
                reason=f"the {other} pass did not compute them",
            )
            for tap, rows in counts.items()
        ]
    return found


def _inside(index: RowIndex, entries: NDArray[np.int64], window: Window) -> NDArray[np.int64]:
    """Entries in steps and rows of the window."""
    steps = np.array([window.has_step(record.step) for record in index.records] or [False])
    inside = steps[index.record[entries]]
    if window.rows is not None:
        inside &= window.rows.mask(index.position[entries])
    return np.asarray(entries[inside])
