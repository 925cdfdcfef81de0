"""What a run on several ranks says about itself, and which rank holds a difference."""

from __future__ import annotations

import numpy as np

from verify.bisect.result import Finding, Verdict
from verify.compare.align import rows_by_pair
from verify.compare.elements import floating_values
from verify.compare.pairs import read_entries
from verify.compare.run import RowComparison
from verify.dumps.format import Dump
from verify.dumps.layout import ATTRIBUTE
from verify.formats import get_format
from verify.ranks.disagree import Disagreement
from verify.ranks.join import Joined, join

_ROWS = 64
_HELD = 0.99
"""Share of a difference (of its square) from which on it is said to be held by some ranks: what
rounding leaves on the others is many orders smaller than a defect."""


def state_disagreements(a: Dump, b: Dump) -> list[Finding]:
    """Copies of one tensor that differ between the ranks of one run, where that begins."""
    findings = []
    for side, dump in (("A", a), ("B", b)):
        by_tap: dict[str, list[Disagreement]] = {}
        for found in disagreements(dump):
            if found.inputs_agree:
                by_tap.setdefault(found.tap, []).append(found)
        findings += [_state(side, found) for found in by_tap.values()]
    return findings


def disagreements(dump: Dump) -> list[Disagreement]:
    """Of a joined run, or of one on several ranks that declared its layouts."""
    if isinstance(dump, Joined):
        return dump.disagreements
    if len(dump.ranks) == 1 or not any(ATTRIBUTE in k.attributes for k in dump.table().kinds):
        return []
    return join(dump).disagreements


def _state(side: str, every: list[Disagreement]) -> Finding:
    """One tap; ``every``: its records that are not equal on all ranks, the first one first."""
    found = every[0]
    where = f"step {found.step}, {found.sequence + ', ' if found.sequence else ''}position"
    reasons = [
        f"first at {where} {found.position}; {found.rows} of {found.of_rows} rows of that record"
        + (f", and in {len(every) - 1} more" if len(every) > 1 else ""),
        "its inputs agree on all ranks, as far as they are copies",
    ]
    if found.collective:
        reasons.append("a collective formed it: its contract is that all ranks hold the same bits")
    else:
        reasons.append("the ranks computed it each for itself: other weights, kernels or threads")
    return Finding(
        verdict=Verdict.DEFECT if found.collective else Verdict.UNRESOLVED,
        title=f"{found.tap}: the ranks of {side} hold different copies, {found.who()}",
        reasons=reasons,
        taps=[found.tap],
        support=found.who(),
        numbers={"rows": sum(each.rows for each in every), "sides": len(found.sides)},
    )


def say_ranks(compared: RowComparison, findings: list[Finding]) -> None:
    """Add to findings that are not explained which ranks hold the difference."""
    x = compared.alignment
    joined = [side for side in (x.a, x.b) if isinstance(side.dump, Joined)]
    if not joined:
        return
    for finding in findings:
        if finding.verdict in (Verdict.DEFECT, Verdict.UNRESOLVED) and len(finding.taps) == 1:
            text = _held_by(compared, finding.taps[0])
            if text:
                finding.reasons.append(text)


def _held_by(compared: RowComparison, tap: str) -> str:
    """Which ranks hold the difference of a tap that is put together from parts."""
    x = compared.alignment
    differing = np.flatnonzero(compared.compared & (compared.measures.differing > 0))
    mine = x.a.is_of(lambda kind: kind.tap == tap)[x.a.record[x.rows_a[differing]]]
    at = differing[mine]
    at = at[np.argsort(-compared.measures.diff_sq[at], kind="stable")[:_ROWS]]
    sizes: dict[tuple[str, int], float] = {}
    for number_a, number_b, rows in rows_by_pair(x, at):
        a, b = x.a.records[number_a], x.b.records[number_b]
        if a.row_length != b.row_length or not (x.a.full[number_a] and x.b.full[number_b]):
            return ""
        first = floating_values(read_entries(x.a, x.rows_a[rows]), get_format(a.dtype))
        second = floating_values(read_entries(x.b, x.rows_b[rows]), get_format(b.dtype))
        apart = np.nan_to_num(np.abs(second - first), nan=np.inf) ** 2
        for side, index, record in (("A", x.a, a), ("B", x.b, b)):
            if not isinstance(index.dump, Joined):
                continue
            part = index.dump.parts[record.seq]
            if part.layout.kind != "shard" or len(part.records) < 2:
                continue
            for rank, columns in part.columns_of().items():
                key = (side, rank)
                sizes[key] = sizes.get(key, 0.0) + float(apart[:, columns].sum())
    return _say(sizes)


def _say(sizes: dict[tuple[str, int], float]) -> str:
    for side in ("A", "B"):
        own = {rank: size for (at, rank), size in sizes.items() if at == side}
        total = sum(own.values())
        if not total:
            continue
        order = sorted(own, key=lambda rank: -own[rank])
        held, ranks = 0.0, []
        for rank in order:
            ranks.append(rank)
            held += own[rank]
            if held >= _HELD * total:
                break
        if len(ranks) < len(own):
            name = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"
            return f"held by the part of {name} of {side} ({held / total:.2%} of its square)"
    return ""
