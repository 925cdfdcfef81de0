"""Chosen tokens, margins and ties, from recorded logits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.synthetic_dumps import SyntheticRun
from verify.bisect.logits import rank, ulp_size
from verify.bisect.tokens import compare_tokens
from verify.compare.run import compare_rows
from verify.formats import get_format

F32, BF16 = get_format("float32"), get_format("bfloat16")


def run(path, logits, chosen=None, dtype="float32", kept="full", sequences=None):
    """A prompt of two tokens and one generated token for each row of logits."""
    texts = {str(i): f" t{i}" for i in range(8)}
    with SyntheticRun(path, sequences or {"s": [5, 6]}, token_text=texts) as synthetic:
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
