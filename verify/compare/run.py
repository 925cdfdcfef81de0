"""Comparing two dumps: align, read in blocks, measure, account for the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.align import Alignment, align
from verify.compare.context import divergence, other_context
from verify.compare.digests import DigestRows
from verify.compare.executor import SerialExecutor, in_order
from verify.compare.index import PADDING, RowIndex
from verify.compare.measure import RowMeasures
from verify.compare.result import Comparison, TapComparison
from verify.compare.stand_ins import not_proven
from verify.compare.tap import TapMeasure, by_tap
from verify.compare.unmatched import incomparable_rows, list_unmatched
from verify.compare.words import compare_words
from verify.dumps.format import Dump
from verify.dumps.format.records import small
from verify.dumps.window import Window
from verify.errors import UsageError


@dataclass(slots=True)
class RowComparison:
    """A comparison with what was measured of every matched row."""

    comparison: Comparison
    alignment: Alignment
    compared: NDArray[np.bool_]
    """For each matched row whether it was compared."""
    apart: NDArray[np.bool_]
    """Matched rows computed from other tokens."""
    measures: RowMeasures
    """One entry a matched row; zeros where it was not compared."""
    parted: dict[str, int]
    """Sequence -> first position at which the runs were given another token."""


def compare(
    a: Dump, b: Dump, taps: Sequence[str] = (), executor: Executor | None = None
) -> Comparison:
    """Compare all rows that two dumps share.

    Args:
        taps: globs; only taps that match one are compared. Empty: all.
        executor: does the tensors, one tap a task; None: this thread. The result is the same in every
            bit. Dumps that a tap map or a layout presents are compared in this thread.

    Raises:
        UsageError: a glob matches no tap of either run.
        CorruptDumpError: words, rows or records are not those that were stored.
    """
    return _compare(a, b, taps, keep_rows=False, executor=executor).comparison


def compare_rows(
    a: Dump, b: Dump, taps: Sequence[str] = (), executor: Executor | None = None
) -> RowComparison:
    """As :func:`compare`, with the measures of every row (about 40 bytes each)."""
    return _compare(a, b, taps, keep_rows=True, executor=executor)


def _compare(
    a: Dump, b: Dump, taps: Sequence[str], *, keep_rows: bool, executor: Executor | None
) -> RowComparison:
    began = time.perf_counter()
    alignment = align(a, b)
    chosen = (_chosen(alignment.a, taps), _chosen(alignment.b, taps))
    _check_globs(alignment, taps)
    parted = divergence(alignment)
    apart = other_context(alignment, parted)
    lacking = incomparable_rows(alignment)
    wanted = chosen[0][alignment.a.record[alignment.rows_a]]
    compared, other = wanted & ~apart & (lacking.code == 0), wanted & apart
    measures = RowMeasures.zeros(len(compared) if keep_rows else 0)
    digests = DigestRows.of(alignment, compared)
    groups = [
        TapMeasure(alignment, at, measures if keep_rows else None, digests)
        for at in by_tap(alignment, small(np.flatnonzero(compared)))
    ]
    results = _run(groups, _able(executor, a, b))
    unproven = not_proven(zip((group.record_a for group in groups), results, strict=True))
    touched = [group.words for group in groups]
    read = np.concatenate(touched) if touched else np.zeros(0, np.int64)
    _verify_rest(alignment.a, alignment.rows_a[read])
    _verify_rest(alignment.b, alignment.rows_b[read])
    comparison = Comparison(
        a=str(a.path),
        b=str(b.path),
        complete_a=a.complete,
        complete_b=b.complete,
        taps=sorted(results, key=lambda tap: tap.order),
        unmatched=[*list_unmatched(alignment, lacking, apart, chosen), *unproven],
        padding_rows=sum(int((i.sequence == PADDING).sum()) for i in (alignment.a, alignment.b)),
        other_context_rows=int(other.sum()),
        rows=sum(tap.rows for tap in results),
        bytes_read=sum(group.bytes_read for group in groups),
        seconds=time.perf_counter() - began,
        notes=[*_problems(a, b), *context_notes(parted, int(other.sum()))],
        window_a=str(Window.of(a.manifest.capture)),
        window_b=str(Window.of(b.manifest.capture)),
    )
    return RowComparison(comparison, alignment, compared, apart, measures, parted)


def _chosen(index: RowIndex, taps: Sequence[str]) -> NDArray[np.bool_]:
    """For each record whether its tap matches one of the globs."""
    if not taps:
        return np.ones(max(1, len(index.records)), np.bool_)
    return index.is_of(lambda kind: any(fnmatchcase(kind.tap, glob) for glob in taps))


def _check_globs(alignment: Alignment, taps: Sequence[str]) -> None:
    known = dict.fromkeys([*alignment.a.records.tap_names, *alignment.b.records.tap_names])
    for glob in taps:
        if not any(fnmatchcase(tap, glob) for tap in known):
            shown = [*known][:6]
            raise UsageError(
                "no tap of either run matches",
                where="--tap",
                found=glob,
                allowed=", ".join(shown) + (f", ... ({len(known)} taps)" if len(known) > 6 else ""),
                hint="`verify inspect RUN` lists the taps; quote the glob against the shell",
            )


def _able(executor: Executor | None, a: Dump, b: Dump) -> Executor:
    """``executor``, if workers can open these dumps by their names."""
    return executor if executor and type(a) is type(b) is Dump else SerialExecutor()


def _run(groups: list[TapMeasure], executor: Executor) -> list[TapComparison]:
    """Compare all taps, those with words by way of the executor."""
    reading = [group for group in groups if group.words.size]
    found = in_order(executor, compare_words, (group.task() for group in reading))
    results = {id(group): group.result(next(found)) for group in reading}
    return [results[id(group)] if group.words.size else group.result(None) for group in groups]


def _verify_rest(index: RowIndex, read: NDArray[Any]) -> None:
    """Check the tensors that no pair read: a dump with damaged parts is not to be trusted."""
    holders = index.records.holders()
    left = np.setdiff1d(holders[index.full], holders[np.unique(index.record[read])])
    for number in left.tolist():
        index.dump.verify_tensor(index.records[number])


def _problems(a: Dump, b: Dump) -> list[str]:
    return [f"{side}: {text}" for side, dump in (("A", a), ("B", b)) for text in dump.problems]


def context_notes(parted: dict[str, int], rows: int) -> list[str]:
    """What is set apart because the texts differ.

    Args:
        parted: sequence -> first position at which the runs were given another token.
        rows: matched rows from there on.
    """
    if not rows:
        return []
    where = [f"{sequence or 'the run'} from position {at} on" for sequence, at in parted.items()]
    shown = ", ".join(where[:4]) + (f" and {len(where) - 4} more" if len(where) > 4 else "")
    return [f"{rows:,} rows of {shown}: the tokens differ there, so these are rows of other texts"]
