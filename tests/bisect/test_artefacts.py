"""Captures that hold another tensor than the model went on with: told, and nothing blamed."""

import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun, Weight
from tests.support.toy_runs import HEAD_DIM, HEADS, Toy, record
from verify.bisect.local import LocalFinding
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.bounds import Bound

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}
CORE, OUT = "layers.1.attn.out", "layers.0.out"


def normed(values, seen):
    return 0.7 * values / np.sqrt((values**2).mean(axis=1, keepdims=True) + 1e-6)


def heads_first(values, seen):
    return values.reshape(-1, HEADS, HEAD_DIM).transpose(1, 0, 2).reshape(values.shape)


def channels_first(values, seen):
    return values.reshape(-1, HEADS, HEAD_DIM).transpose(0, 2, 1).reshape(values.shape)


PLANTED = [
    pytest.param(OUT, lambda v, seen: seen["layers.0.mlp.out"], "own layers.0.mlp.out", id="mlp"),
    pytest.param(
        OUT,
        lambda v, seen: v - seen["embed.out"],
        "that of B plus embed.out (residual",
        id="without the residual",
    ),
    pytest.param(OUT, normed, "B's layers.0.out is A's, normalised and weighted", id="after norm"),
    pytest.param(
        CORE,
        lambda v, seen: np.broadcast_to(v[-1:], v.shape) * np.float32(1.5),
        "a view that was overwritten before it was copied",
        id="overwritten",
    ),
    pytest.param(CORE, heads_first, "with the axes h and positions exchanged", id="h t d"),
    pytest.param(CORE, channels_first, "with the axes h and d exchanged", id="d h"),
    pytest.param(
        CORE, lambda v, seen: v[:, ::-1], "each row of B's layers.1.attn.out is a perm", id="order"
    ),
]


@pytest.mark.parametrize(("tap", "wrong", "said"), PLANTED)
@pytest.mark.parametrize("side", ["A", "B"])
def test_what_no_operation_read_is_told_and_not_blamed(tmp_path, tap, wrong, said, side):
    planted = Toy(PROMPT, misrecorded={tap: wrong})
    toys = (planted, Toy(PROMPT)) if side == "A" else (Toy(PROMPT), planted)
    result = bisect(*(record(tmp_path / n, toy) for n, toy in zip("ab", toys, strict=True)))
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    (finding,) = result.findings
    assert finding.title == f"{tap} is not the same tensor in both runs"
    if side == "B":
        assert said in finding.reasons[0]
    assert any("what was computed from it does not" in reason for reason in finding.reasons)
    assert result.origins == []


@pytest.mark.parametrize(("tap", "wrong", "said"), PLANTED)
def test_the_same_values_in_the_model_are_a_difference_of_the_model(tmp_path, tap, wrong, said):
    """The counter-example: here the run goes on with what was recorded."""
    a = record(tmp_path / "a", Toy(PROMPT))
    seen = {"layers.0.mlp.out": 0.25, "embed.out": 0.5}
    toy = Toy(PROMPT, faults={tap: lambda values, rows: wrong(values, seen) * np.ones_like(values)})
    result = bisect(a, record(tmp_path / "b", toy))
    assert result.verdict in (Verdict.DEFECT, Verdict.UNRESOLVED)
    assert result.origins[0].tap == tap


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_told_above_innocent_rounding_and_the_rounding_stays_its_own_finding(tmp_path, dtype):
    """Everything differs a little from layer 0 on, so nothing after the tap is equal in all bits."""
    step = 2**-22 if dtype == "float32" else 2**-8
    faults = {"layers.0.attn.out": lambda values, rows: values * np.float32(1 + step)}
    b = Toy(PROMPT, dtype=dtype, faults=faults, misrecorded={CORE: heads_first})
    result = bisect(record(tmp_path / "a", Toy(PROMPT, dtype=dtype)), record(tmp_path / "b", b))
    titles = [finding.title for finding in result.findings]
    assert f"{CORE} is not the same tensor in both runs" in titles
    assert [origin.tap for origin in result.origins] == ["layers.0.attn.out"]
    assert Verdict.DEFECT not in [finding.verdict for finding in result.findings]


def test_a_check_that_was_given_such_a_tap_accuses_nobody(tmp_path):
    """A replay computes the readers from what the dump holds, and finds them all wrong."""

    def accuse(op):
        adds = op.place.tap in ("layers.1.q_proj.out", "layers.1.mlp.out")
        verdict = Verdict.DEFECT if adds else Verdict.ROUNDING
        return LocalFinding(op.place.tap, verdict, "replayed", Bound(1.0, "a test"), 0.5, 0, 0)

    step = {"layers.0.attn.out": lambda values, rows: values * np.float32(1 + 2**-22)}
    b = Toy(PROMPT, faults=step, misrecorded={OUT: lambda v, seen: seen["layers.0.mlp.out"]})
    dumps = record(tmp_path / "a", Toy(PROMPT)), record(tmp_path / "b", b)
    result = bisect(*dumps, checkers=[accuse])
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    titles = [f.title for f in result.findings if f.verdict is Verdict.NOT_COMPARABLE]
    assert titles[0] == f"{OUT} is not the same tensor in both runs"
    assert "not judged, one of its inputs was recorded as something else" in titles[1]


def test_nan_in_every_step_is_no_broken_capture(tmp_path):
    def nan(values, rows):
        values[-1] = np.nan
        return values

    forced = {"p#0": [3, 4, 5]}
    toy = Toy(PROMPT, forced=forced, faults={"layers.0.attn.out": nan})
    a = record(tmp_path / "a", Toy(PROMPT, forced=forced))
    result = bisect(a, record(tmp_path / "b", toy))
    assert result.verdict is Verdict.DEFECT
    assert result.findings[0].taps == ["layers.0.attn.out"]


def test_a_defect_behind_such_a_tap_is_still_seen(tmp_path):
    faults = {"layers.1.mlp.out": lambda values, rows: values * np.float32(1.5)}
    b = Toy(PROMPT, faults=faults, misrecorded={OUT: lambda v, seen: seen["layers.0.mlp.out"]})
    result = bisect(record(tmp_path / "a", Toy(PROMPT)), record(tmp_path / "b", b))
    assert result.exit_code == 1
    assert "layers.1.mlp.out" in [origin.tap for origin in result.origins]


def test_without_edges_what_follows_decides(tmp_path):
    """One tap of another tensor among equal ones; then the same with a later tap that differs."""

    def run(name, middle, last):
        with SyntheticRun(tmp_path / name, {"s": [1, 2]}) as synthetic, synthetic.step():
            synthetic.add("a.out", [[1.0, 2.0], [3.0, 4.0]])
            synthetic.add("b.out", middle)
            synthetic.add("c.out", last)
        return synthetic.open()

    true, other = [[5.0, 6.0], [7.0, 8.0]], [[6.0, 5.0], [1.0, 0.0]]
    result = bisect(run("a", true, true), run("b", other, true))
    assert [f.taps for f in result.findings] == [["b.out"]]
    assert result.verdict is Verdict.NOT_COMPARABLE
    assert "all 1 taps after it in its step agree" in result.findings[0].reasons[-2]
    result = bisect(run("c", true, true), run("d", other, [[5.0, 6.0], [7.0, 8.5]]))
    assert result.verdict is Verdict.UNRESOLVED


def test_a_reference_with_heads_first_is_told_where_nothing_was_computed_from_it(tmp_path):
    """A single operation against its reference: q, k and v are equal, the output is in other axes."""
    draw = np.random.default_rng(0)
    out = draw.standard_normal((5, 2 * 4))

    def run(name, values):
        with SyntheticRun(tmp_path / name, {"s": [1, 2, 3, 4, 5]}) as synthetic, synthetic.step():
            at = synthetic.add("attn.in.q", out * 2, "b h t d", shape=[1, 2, 5, 4])
            inputs = [at, Weight("w")]
            synthetic.add("attn.out", values, "b t h d", shape=[1, 5, 2, 4], inputs=inputs)
        return synthetic.open()

    swapped = out.reshape(5, 2, 4).transpose(1, 0, 2).reshape(5, 8)
    result = bisect(run("a", out), run("b", swapped))
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    assert "with the axes h and positions exchanged" in result.findings[0].reasons[0]
    other = bisect(run("c", out), run("d", out + draw.standard_normal(out.shape)))
    assert other.verdict is not Verdict.NOT_COMPARABLE


class LastStep:
    """Hands out one array that every step overwrites, as a capture of views would hold it."""

    def __init__(self):
        self.rows = {}

    def keep(self, tap):
        def last(values, seen):
            self.rows[tap] = values
            return values

        return last

    def show(self, tap):
        return lambda values, seen: self.rows[tap] if len(values) == 1 else values


def test_a_run_whose_steps_all_hold_the_last_one_is_a_broken_capture(tmp_path):
    taps = [tap.tap for tap in record(tmp_path / "a", Toy(PROMPT, tokens=5)).records()]
    taps = [tap for tap in dict.fromkeys(taps) if not tap.startswith("tokens")]
    views = LastStep()
    once = Toy(PROMPT, tokens=5, misrecorded={tap: views.keep(tap) for tap in taps})
    a = record(tmp_path / "once", once)
    assert bisect(a, record(tmp_path / "again", Toy(PROMPT, tokens=5))).verdict is Verdict.IDENTICAL
    broken = Toy(PROMPT, tokens=5, misrecorded={tap: views.show(tap) for tap in taps})
    result = bisect(a, record(tmp_path / "b", broken))
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    assert result.findings[0].title == "All steps of run B hold the same bits"
    assert result.origins == []
