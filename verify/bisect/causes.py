"""Which setting that differs is known to change the bits of the very operation that differs.

A known cause is named beside a difference and explains nothing by itself: whether what the operation
adds is rounding, a check decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from verify.bisect.origins import Place
from verify.bisect.result import Confounder
from verify.compare.align import rows_by_pair
from verify.compare.run import RowComparison
from verify.dumps.format.schema import Record

_PRODUCTS = {"aten.mm", "aten.addmm", "aten.linear", "aten.matmul", "aten.bmm"}
_MODULO = 16
"""Bytes: one-row products of CPU libraries differ between addresses that differ modulo 16."""


def known_causes(compared: RowComparison, place: Place, confounders: list[Confounder]) -> list[str]:
    """In words, the most specific first."""
    differing = {c.name: c for c in confounders}
    return list(_causes(compared, place, differing))


def _causes(
    compared: RowComparison, place: Place, differing: dict[str, Confounder]
) -> Iterator[str]:
    x = compared.alignment
    pairs = [(x.a.records[a], x.b.records[b]) for a, b, _ in rows_by_pair(x, place.at)]
    a, b = pairs[0]
    ops = {op.partition("[")[0] for op in (*a.ops, *b.ops)}
    alignment = differing.get("settings.weights_alignment")
    if alignment and ops & _PRODUCTS and _apart(alignment) and _one_row_calls(pairs):
        equal = _equal_rows_of_longer_calls(compared, place)
        rest = f", while {equal} rows of calls of several rows are equal" if equal else ""
        yield (
            "known cause: the weights lie at other addresses (aligned to "
            f"{alignment.a} bytes in A, {alignment.b} in B), and products of one row depend on the "
            f"address modulo {_MODULO}; every differing row is the only one of its call{rest}"
        )
    if counts := sorted({(_rows(r), _rows(s)) for r, s in pairs if _rows(r) != _rows(s)}):
        yield (
            f"known cause: the calls have other numbers of rows ({counts[0][0]} in A, {counts[0][1]} "
            "in B), by which kernels choose their blocks"
        )
    threads = differing.get("settings.threads") or differing.get("env.torch.threads")
    if threads and (ops & _PRODUCTS or any("attention" in op for op in ops)):
        yield (
            f"known cause: threads, {threads.a} in A and {threads.b} in B, among which this "
            "operation splits its work"
        )


def _apart(alignment: Confounder) -> bool:
    """Whether the addresses differ modulo 16."""
    sizes = [int(text) for text in (alignment.a, alignment.b) if text.isdigit()]
    return len(sizes) == 2 and min(sizes) < _MODULO


def _one_row_calls(pairs: list[tuple[Record, Record]]) -> bool:
    return all(_rows(record) == 1 for pair in pairs for record in pair)


def _rows(record: Record) -> int:
    """Tokens of the call: its rows along sequence and token axes."""
    size = dict(zip(record.axes.split(), record.shape, strict=True))
    return size.get("b", 1) * size.get("t", 1)


def _equal_rows_of_longer_calls(compared: RowComparison, place: Place) -> int:
    x = compared.alignment
    of_tap = x.a.is_of(lambda kind: kind.tap == place.tap and _rows(kind) > 1)
    rows = compared.compared & of_tap[x.a.record[x.rows_a]]
    return int((rows & (compared.measures.differing == 0)).sum())
