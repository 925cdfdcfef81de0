"""Runs that were given something else than their rows say: nothing is blamed."""

import pytest

from tests.support.synthetic_dumps import SyntheticRun, Value
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.bisect.shifts import shift_between

PROMPT = [5, 6, 7, 8]


def run(path, ids, *, prompt=PROMPT, start=0, positions=None, steps=(), named=True):
    """A prefill of ``ids`` from row position ``start`` on, and one-row steps after it."""
    with SyntheticRun(path, {"s": prompt} if named else {}) as synthetic:
        fed = [(start, ids), *((at, [token]) for at, token in steps)]
        for at, tokens in fed:
            rows = [("s", at + i) for i in range(len(tokens))]
            with synthetic.step():
                given = [[token] for token in tokens]
                seq = synthetic.add(
                    "tokens.in", given, "b t", rows=rows, dtype="int64", inputs=[Value("ids", "1")]
                )
                if positions:
                    synthetic.add(
                        "positions.in",
                        [[p] for p in positions],
                        "b t",
                        rows=rows,
                        dtype="int64",
                    )
                values = [[token + 0.5, token * 2.0] for token in tokens]
                synthetic.add("layer.out", values, "b t c", rows=rows, inputs=[seq])
    return synthetic.open()


def refused(a, b):
    result = bisect(a, b)
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    assert result.origins == []
    return result.findings[0]


def test_one_more_start_token_is_a_shift_by_one(tmp_path):
    a = run(tmp_path / "a", PROMPT)
    b = run(tmp_path / "b", [1, *PROMPT], prompt=[1, *PROMPT])
    assert refused(a, b).reasons == [
        "the prompt of s is shifted by one token: B begins with 1, which A lacks; the rest is the same"
    ]
    assert "A begins with 1, which B lacks" in refused(b, a).reasons[0]


def test_a_shift_is_seen_between_sequences_of_other_names(tmp_path):
    with SyntheticRun(tmp_path / "a", {"x": PROMPT}) as a, a.step():
        a.add("layer.out", [[1.0]])
    with SyntheticRun(tmp_path / "b", {"y": [1, 2, *PROMPT]}) as b, b.step():
        b.add("layer.out", [[1.0]])
    found = refused(a.open(), b.open())
    assert found.title == "The prompts are shifted by a few tokens"
    assert "shifted by 2 tokens: B begins with 1, 2, which A lacks" in found.reasons[0]


def test_positions_that_count_from_one_are_a_shift(tmp_path):
    found = refused(run(tmp_path / "a", PROMPT), run(tmp_path / "b", PROMPT, start=1))
    assert found.title == "The positions of run B are shifted by one"
    assert found.reasons == ["token 0 of s stands at position 1"]


@pytest.mark.parametrize(
    ("ids", "where"),
    [
        pytest.param([0, 0, *PROMPT], "positions 0 to 1", id="left"),
        pytest.param([*PROMPT, 0, 0, 0], "positions 4 to 6", id="right"),
    ],
)
def test_padding_taken_as_text_is_named(tmp_path, ids, where):
    found = refused(run(tmp_path / "a", PROMPT, steps=[(4, 9)]), run(tmp_path / "b", ids))
    assert found.title == "Padding rows of run B are taken as text"
    assert where in found.reasons[0] and "hold token 0" in found.reasons[0]


def test_a_manifest_that_both_runs_contradict_alike_is_no_ground(tmp_path):
    """The rows hold the same tokens, so they stand against each other rightly."""
    a, b = (run(tmp_path / name, [0, *PROMPT]) for name in "ab")
    assert bisect(a, b).verdict is Verdict.IDENTICAL


def test_drafts_behind_the_prompt_are_no_padding(tmp_path):
    a = run(tmp_path / "a", PROMPT, steps=[(4, 9), (5, 3)])
    b = run(tmp_path / "b", [*PROMPT, 9, 3])
    assert bisect(a, b).verdict is Verdict.IDENTICAL


def test_other_position_ids_are_named_and_nothing_behind_them(tmp_path):
    a = run(tmp_path / "a", PROMPT, positions=[0, 1, 2, 3])
    b = run(tmp_path / "b", PROMPT, positions=[1, 2, 3, 4])
    found = refused(a, b)
    assert found.title == "The runs were given other positions"
    assert "was position 0 for A's model and 1 for B's; 3 more rows" in found.reasons[0]


def test_without_prompts_the_first_step_is_compared(tmp_path):
    a = run(tmp_path / "a", PROMPT, named=False)
    found = refused(a, run(tmp_path / "b", [1, *PROMPT], named=False))
    assert found.title == "The runs were given tokens shifted by one"
    found = refused(a, run(tmp_path / "c", [5, 6, 9, 9], named=False))
    assert found.title == "The runs were given other tokens"
    assert found.reasons == ["position 2 of s is 7 in A and 9 in B"]


def test_chunks_and_repeats_of_the_same_tokens_are_fine(tmp_path):
    a = run(tmp_path / "a", PROMPT, steps=[(4, 9)], positions=None)
    b = run(tmp_path / "b", PROMPT[:2], steps=[(2, 7), (3, 8), (4, 9)])
    assert bisect(a, b).verdict is Verdict.IDENTICAL


@pytest.mark.parametrize(
    ("a", "b", "shift"),
    [
        ([1, 2, 3], [1, 2, 3], 0),
        ([1, 2, 3], [9, 1, 2, 3], 1),
        ([9, 8, 1, 2, 3], [1, 2, 3], -2),
        ([1, 2, 3], [1, 2, 4], None),
        ([1, 2, 3], [3, 4, 5], None),  # one shared token means nothing
        ([], [1], None),
    ],
)
def test_shift_between(a, b, shift):
    assert shift_between(a, b) == shift
