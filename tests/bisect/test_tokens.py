"""Chosen tokens, margins and ties, from recorded logits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.logits import rank, ulp_size
from verify.bisect.result import Verdict
from verify.bisect.token_findings import state_after_logits, state_lead
from verify.bisect.tokens import compare_tokens
from verify.compare.run import compare_rows
from verify.formats import get_format

F32, BF16 = get_format("float32"), get_format("bfloat16")


def run(path, logits, chosen=None, dtype="float32", kept="full", sampling=None):
    """A prompt of two tokens and one generated token for each row of logits."""
    texts = {str(i): f" t{i}" for i in range(8)}
    options = {} if sampling is None else {"sampling": sampling}
    with SyntheticRun(path, {"s": [5, 6]}, token_text=texts, **options) as synthetic:
        for index, row in enumerate(np.asarray(logits, float)):
            rows = [("s", 1 + index)]
            token = int(np.nanargmax(row)) if chosen is None else chosen[index]
            with synthetic.step():
                at = synthetic.add("logits", row[None], "b t v", rows=rows, dtype=dtype, kept=kept)
                synthetic.add("tokens.out", [[token]], "b t", rows=rows, dtype="int64", inputs=[at])
    return synthetic.open()


def tokens(a, b):
    return compare_tokens(compare_rows(a, b))


def test_margins_steps_and_shifts(tmp_path):
    a = run(tmp_path / "a", [[0.0, 3.0, 2.5, 1.0]])
    b = run(tmp_path / "b", [[0.5, 2.25, 2.75, 1.0]])
    (found,) = tokens(a, b).positions
    assert (found.position, found.index) == (1, 0)
    assert (found.chosen_a, found.chosen_b) == (1, 2)
    assert (found.margin_a, found.margin_b) == (0.5, 0.5)
    assert found.margin_a_steps == 0.5 / 2**-22  # ULP of float32 in [2, 4)
    assert found.logit_shift == 0.75
    # (b[1] - b[2]) - (a[1] - a[2]): beyond A's margin, so the choice flips.
    assert found.pair_shift == -1.0
    assert [t.id for t in found.a] == [1, 2, 3, 0]
    assert found.a[0].text == " t1"
    assert found.same_context


def test_where_the_choices_agree_the_runner_up_is_the_rival(tmp_path):
    a = run(tmp_path / "a", [[0.0, 3.0, 2.5]])
    b = run(tmp_path / "b", [[0.0, 3.0, 2.75]])
    (found,) = tokens(a, b).positions
    assert found.pair_shift == -0.25
    assert tokens(a, b).first is None


def test_a_tie_is_flagged_on_its_side(tmp_path):
    a = run(tmp_path / "a", [[17.0, 16.5, 3.0]], dtype="bfloat16")
    b = run(tmp_path / "b", [[17.0, 17.0, 3.0]], chosen=[1], dtype="bfloat16")
    found = tokens(a, b).first
    assert (found.tie_a, found.tie_b) == (False, True)
    assert found.margin_a_steps == 4.0  # bfloat16 steps by 0.125 from 16 to 32
    assert found.margin_b_steps == 0.0


def test_equal_logits_and_other_tokens_are_set_apart(tmp_path):
    a = run(tmp_path / "a", [[1.0, 1.0, 0.0]], chosen=[0])
    b = run(tmp_path / "b", [[1.0, 1.0, 0.0]], chosen=[1])
    found = tokens(a, b)
    assert found.equal_logits == [found.first]
    assert found.first.tie_a


def test_a_tie_in_both_runs_whose_choices_differ_is_the_rule_for_ties(tmp_path):
    """Other logits differ, so that equality of every bit would miss it."""
    a = run(tmp_path / "a", [[2.0, 2.0, 0.0]], chosen=[0])
    b = run(tmp_path / "b", [[2.0, 2.0, 0.5]], chosen=[1])
    found = tokens(a, b)
    assert found.equal_logits == [] and [c.tie_rule for c in found.after_logits] == [True]
    (finding,) = state_after_logits(found)
    assert finding.verdict is Verdict.POST_LOGITS
    assert "the runs' rules for ties differ" in finding.reasons[1]


def test_a_flip_that_the_logits_explain_is_no_sampler(tmp_path):
    a = run(tmp_path / "a", [[2.0, 2.0, 0.0]], chosen=[0])
    b = run(tmp_path / "b", [[2.0, 2.25, 0.0]])
    assert tokens(a, b).after_logits == []


def test_a_greedy_run_that_leaves_its_best_logit_is_named(tmp_path):
    a = run(tmp_path / "a", [[2.0, 1.0, 0.0]])
    b = run(tmp_path / "b", [[2.25, 1.0, 0.0]], chosen=[1])
    (finding,) = state_after_logits(tokens(a, b))
    assert "B chose id 1, whose logit is 1.25 below its best" in finding.reasons


def test_ties_at_the_last_rank_of_a_filter_are_counted(tmp_path):
    sampling = {"kind": "sample", "top_k": 2}
    a = run(tmp_path / "a", [[3.0, 2.0, 2.0, 1.0]], chosen=[1], sampling=sampling)
    b = run(tmp_path / "b", [[3.0, 2.0, 2.0, 1.0]], chosen=[2], sampling=sampling)
    (finding,) = state_after_logits(tokens(a, b))
    assert "3 candidates reach the logit of rank 2" in finding.reasons[1]


def forced(tmp_path, draw, noise, margin=4.0, changed=()):
    """40 choices with this margin and this noise, some logits of B changed."""
    logits = draw.standard_normal((40, 12)) / 8
    logits[:, 0] += margin
    other = logits + noise * draw.standard_normal(logits.shape)
    for position in changed:
        other[position, 3] = other[position, 0] + 1
    return tokens(run(tmp_path / "a", logits), run(tmp_path / "b", other))


def test_a_flip_far_beyond_the_noise_is_a_lead(tmp_path):
    found = forced(tmp_path, np.random.default_rng(3), 0.01, changed=[17])
    assert found.flips.observed == 1 and found.flips.expected < 1e-6
    assert [p.index for p in found.sure_flips] == [17]
    assert found.sure_flips[0].closeness == "beyond rounding"
    (finding,) = state_lead(found, ["layers.3.attn.out"])
    assert finding.verdict is Verdict.UNRESOLVED and finding.numbers["margin / sigma"] > 6
    assert state_lead(found, []) == []  # everything is measured: it leads nowhere


def test_flips_of_near_ties_are_no_lead(tmp_path):
    found = forced(tmp_path, np.random.default_rng(4), 0.2, margin=0.2)
    assert found.flips.observed > 0
    assert found.flips.expected == pytest.approx(found.flips.observed, rel=0.6)
    assert found.sure_flips == [] and state_lead(found, ["x"]) == []
    assert {p.closeness for p in found.positions if p.chosen_a != p.chosen_b} == {"near tie"}


def test_positions_with_nan_are_left_out_of_the_count(tmp_path):
    a = run(tmp_path / "a", [[1.0, 2.0], [0.0, 1.0]])
    b = run(tmp_path / "b", [[math.nan, 2.0], [0.0, 1.5]])
    found = tokens(a, b)
    assert (found.flips.positions, found.flips.left_out) == (1, 1)
    assert found.positions[0].flip_chance is None


def test_flips_are_counted_even_without_logits(tmp_path):
    a = run(tmp_path / "a", [[1.0, 0.0], [1.0, 0.0]], kept="digest")
    b = run(tmp_path / "b", [[1.0, 0.0], [0.0, 1.0]], kept="digest")
    found = tokens(a, b)
    assert found.first.index == 1
    assert found.first.a == [] and math.isnan(found.first.margin_a)
    assert found.equal_logits == []


def test_a_nan_in_the_logits_is_no_candidate_and_no_small_shift(tmp_path):
    a = run(tmp_path / "a", [[1.0, 2.0, 0.0]])
    b = run(tmp_path / "b", [[1.0, 2.0, math.nan]])
    (found,) = tokens(a, b).positions
    assert [t.id for t in found.b] == [1, 0]
    assert found.logit_shift == math.inf


def test_under_a_tape_every_position_is_compared(tmp_path):
    """The fed tokens are the same, so that a flip does not end the comparison."""
    draw = np.random.default_rng(0)
    logits = draw.standard_normal((6, 8))
    other = logits.copy()
    other[[1, 4], :] = -other[[1, 4], :]
    found = tokens(run(tmp_path / "a", logits), run(tmp_path / "b", other))
    assert [p.index for p in found.positions] == list(range(6))
    assert [p.index for p in found.positions if p.chosen_a != p.chosen_b] == [1, 4]
    assert [p.index for p in found.first_flips] == [1]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 6))
def test_ranking_agrees_with_a_stable_sort(values, count):
    found = rank(np.array(values, float), F32, count)
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert found.ids == expected
    assert found.logits == [values[i] for i in expected]


@pytest.mark.parametrize(
    ("value", "fmt", "size"),
    [
        (1.0, F32, 2**-23),
        (-1.99, F32, 2**-23),
        (17.4, BF16, 0.125),
        (0.0, F32, 2**-149),
        (2.0**-140, F32, 2**-149),
    ],
)
def test_ulp_size(value, fmt, size):
    assert ulp_size(value, fmt) == size
