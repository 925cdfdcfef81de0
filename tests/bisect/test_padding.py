"""NaN that begins in padding rows: the operation that made it is named, not the one that shows it."""

import pytest

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.padding import find_padding_fronts
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.compare.run import compare_rows

NAN = float("nan")
ROWS = [(None, -1), ("s", 0), ("s", 1)]


def run(path, core=1.0, text=2.0):
    """One padding row in front of two rows of text, through two attention cores."""
    with SyntheticRun(path, {"s": [5, 6]}) as synthetic, synthetic.step():
        x = synthetic.add("x.out", [[1.0, 2.0]] * 3, rows=ROWS)
        values = [[core, 1.0], [1.0, 3.0], [2.0, 2.0]]
        first = synthetic.add("0.attn.out", values, rows=ROWS, inputs=[x])
        keys = synthetic.add("1.attn.in.k", values, "b h s d", rows=ROWS, inputs=[first])
        shown = [[1.0, 1.0], [text, 1.0], [text, 2.0]]
        synthetic.add("1.attn.out", shown, rows=ROWS, inputs=[first, keys])
    return synthetic.open()


def test_the_core_that_made_it_is_named(tmp_path):
    result = bisect(run(tmp_path / "a"), run(tmp_path / "b", core=NAN, text=NAN))
    (finding,) = result.findings
    assert finding.verdict is Verdict.DEFECT
    assert finding.title == "0.attn.out: NaN appears here first, in padding rows of B"
    assert finding.taps == ["0.attn.out", "1.attn.out"]
    assert result.origins == []


@pytest.mark.parametrize("core", [1.0, NAN], ids=["finite padding", "NaN in the padding of both"])
def test_nan_of_its_own_is_no_padding(tmp_path, core):
    a, b = run(tmp_path / "a", core=core), run(tmp_path / "b", core=core, text=NAN)
    assert find_padding_fronts(compare_rows(a, b)) == []
    assert bisect(a, b).findings[0].taps == ["1.attn.out"]


def test_padding_that_reaches_nothing_is_no_finding(tmp_path):
    result = bisect(run(tmp_path / "a"), run(tmp_path / "b", core=NAN))
    assert (result.verdict, result.exit_code) == (Verdict.IDENTICAL, 0)


def test_a_nan_bug_and_innocent_rounding_are_two_findings(tmp_path):
    """Left padding, fully masked rows that come out NaN in layer 1, and another attention."""
    pytest.importorskip("transformers")
    from tests.support.toy_pairs import Side, changed_attention, pair
    from verify.replay.checker import checker
    from verify.replay.run import Models, replay

    def nan_in_padding(model):
        def change(out, q, k, v):
            if out.shape[1] > 1:
                out = out.clone()
                out[1, :3] = NAN
            return out

        return changed_attention(model, 1, change)

    options = {"prompts": ("Longer", "Sho")}
    a, b = pair(
        tmp_path,
        Side(attn="eager", options=options, layers=4),
        Side(options=options, layers=4, plant=nan_in_padding),
        tokens=2,
    )
    bug, rounding = "model.layers.1.self_attn.attn.out", "model.layers.0.self_attn.attn.out"
    alone = bisect(a.dump, b.dump)
    assert [f.verdict for f in alone.findings] == [Verdict.DEFECT, *[Verdict.UNRESOLVED] * 2]
    assert alone.findings[0].taps[0] == bug and alone.findings[1].taps == [rounding]

    replayed = replay(a.dump, b.dump, Models(a.implementation, b.implementation))
    result = bisect(a.dump, b.dump, checkers=[checker(replayed, a.dump, b.dump)])
    defect, *rest = result.findings
    assert (defect.verdict, defect.taps[0]) == (Verdict.DEFECT, bug)
    assert {finding.verdict for finding in rest} == {Verdict.ROUNDING}
    assert rounding in [tap for finding in rest for tap in finding.taps]
