"""A tensor-parallel toy on 2 and 4 processes (gloo) against one: what aligns, and who is blamed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from verify.bisect.result import BisectResult, Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.compare.run import compare
from verify.dumps.format import open_dump
from verify.errors import ArgumentError, CorruptDumpError
from verify.taps.open import open_mapped

pytestmark = pytest.mark.slow


def judged(a: Path, b: Path, weights: str) -> BisectResult:
    pair = open_mapped(a, b, None)
    return bisect(*pair, checkers=[own_roundings(*pair, weights)])


def defects(result: BisectResult) -> set[str]:
    return {tap for f in result.findings if f.verdict is Verdict.DEFECT for tap in f.taps}


@pytest.mark.parametrize("ranks", ["2", "4"])
def test_the_rounding_of_a_split_is_called_rounding(runs: Path, weights: str, ranks: str) -> None:
    result = judged(runs / "1/plain", runs / ranks / "plain", weights)
    comparison = result.comparison
    assert comparison is not None and not comparison.unmatched
    assert len(comparison.taps) == 48 and any(t.differing_rows for t in comparison.taps)
    assert result.verdict is Verdict.ROUNDING and result.exit_code == 0
    assert result.origins[0].tap == "layers.0.attn.o_proj.out"


def test_without_weights_it_stays_open(runs: Path) -> None:
    result = bisect(*open_mapped(runs / "1/plain", runs / "2/plain", None))
    assert result.verdict is Verdict.UNRESOLVED


@pytest.mark.parametrize(
    ("run", "rank", "tap"),
    [
        ("4/scale", 2, "layers.1.attn.v_proj.out"),
        ("4/reduce", 2, "layers.1.mlp.reduce.out"),
        ("4/bias", 2, "layers.1.mlp.up_proj.out"),
        ("2/bias", 1, "layers.1.mlp.up_proj.out"),
        ("2/partial", 1, "layers.1.mlp.down_proj.out"),
    ],
)
def test_a_fault_of_one_rank_is_found_there_and_nowhere_else(
    runs: Path, weights: str, run: str, rank: int, tap: str
) -> None:
    result = judged(runs / "1/plain", runs / run, weights)
    assert result.verdict is Verdict.DEFECT
    assert defects(result) == {tap}
    told = [
        text
        for finding in result.findings
        if finding.verdict is Verdict.DEFECT
        for text in (finding.support, *finding.reasons)
    ]
    assert any(f"rank {rank}" in text for text in told)
    others = [other for other in range(4) if other != rank]
    alone = [text for text in told if "against" not in text]
    assert not any(f"rank {other}" in text for other in others for text in alone)


def test_two_ranks_against_four(runs: Path, weights: str) -> None:
    assert judged(runs / "2/plain", runs / "4/plain", weights).verdict is Verdict.ROUNDING
    faulty = judged(runs / "2/plain", runs / "4/bias", weights)
    assert defects(faulty) == {"layers.1.mlp.up_proj.out"}


def test_equal_numbers_of_ranks_match_by_number(runs: Path) -> None:
    first, second = open_mapped(runs / "2/plain", runs / "2/again", None)
    assert first.ranks == second.ranks == [0, 1]
    result = bisect(first, second)
    assert result.verdict is Verdict.IDENTICAL and result.exit_code == 0


def test_copies_that_differ_are_a_finding_by_themselves(runs: Path) -> None:
    """Two runs of one faulty program agree in every bit, and are still not in order."""
    result = bisect(*open_mapped(runs / "4/reduce", runs / "4/again", None))
    assert result.verdict is Verdict.DEFECT and result.exit_code == 1
    found = [f for f in result.findings if f.verdict is Verdict.DEFECT]
    assert {f.support for f in found} == {"rank 2 against ranks 0, 1, 3"}
    assert {tap for f in found for tap in f.taps} == {"layers.1.mlp.reduce.out"}


def test_a_layout_that_does_not_fit_is_refused_or_compares_nothing(runs: Path) -> None:
    one, two = runs / "1/plain", runs / "2/plain"
    with pytest.raises(ArgumentError, match="dimension that the tensor does not have"):
        open_mapped(one, two, None, {"head.out": "shard:3"})
    with pytest.raises(ArgumentError, match="match rank by rank"):
        open_mapped(two, runs / "2/again", None, {"head.out": "shard:2"})
    wrong = compare(*open_mapped(one, two, None, {"head.out": "replicated"}))
    assert not any(tap.tap == "head.out" and tap.equal_rows for tap in wrong.taps)


def test_a_missing_part_of_one_rank_is_corruption(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs / "2/plain", copy)
    shutil.rmtree(copy / "rank-1" / "part-00002")
    with pytest.raises(CorruptDumpError, match="rank 1 does not end as the manifest says"):
        open_dump(copy)
