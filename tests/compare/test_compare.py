"""Two dumps through `verify.compare`: differences, gaps and damage each come out as what they are."""

import math

import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun
from tests.support.toy_runs import Toy, record
from verify.compare import exit_codes, pairs
from verify.compare.run import compare
from verify.errors import CorruptDumpError, UsageError

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}


def simple(path, values, *, dtype="float32", kept="full", complete=True, **options):
    """A dump of one tap."""
    run = SyntheticRun(path, {"s": [1]})
    with run.step():
        run.add("x.out", values, dtype=dtype, kept=kept, **options)
    if complete:
        run.close()
    return run.open()


def tap(comparison, name="x.out"):
    return next(t for t in comparison.taps if t.tap == name)


def test_repeats_are_equal_and_exit_0(tmp_path):
    found = compare(*(record(tmp_path / side, Toy(PROMPT)) for side in "ab"))
    assert all(t.equal for t in found.taps)
    assert len(found.taps) == 28
    assert (found.unmatched, found.notes) == ([], [])
    assert exit_codes.of_comparison(found) == 0


@pytest.mark.parametrize("chunk", [1, 4, 5])
def test_chunked_and_whole_prefill_compare_row_by_row(tmp_path, chunk):
    a = record(tmp_path / "a", Toy(PROMPT))
    found = compare(a, record(tmp_path / "b", Toy(PROMPT, chunk=chunk)))
    assert all(t.equal for t in found.taps)
    assert tap(found, "layers.1.out").rows == 8
    assert exit_codes.of_comparison(found) == 0


def test_batch_and_single_compare_the_common_sequence(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT))
    b = record(tmp_path / "b", Toy({**PROMPT, "p#1": PROMPT["p#0"]}))
    found = compare(a, b)
    assert all(t.equal for t in found.taps)
    assert {u.reason for u in found.unmatched} == {"A ran no such sequence"}
    assert exit_codes.of_comparison(found) == 3


def test_the_first_difference_names_row_element_and_steps(tmp_path):
    def fault(values, rows):
        for i, (_, position) in enumerate(rows):
            if position >= 4:
                values[i, 9] += 1
        return values

    a = record(tmp_path / "a", Toy(PROMPT))
    b = record(tmp_path / "b", Toy(PROMPT, chunk=3, faults={"layers.0.mlp.out": fault}))
    first = tap(compare(a, b), "layers.0.mlp.out").first
    assert (first.sequence, first.position, first.element) == ("p#0", 4, 9)
    assert (first.step_a, first.step_b) == (0, 1)


def test_taps_come_in_execution_order_not_in_that_of_their_names(tmp_path):
    dumps = []
    for side, shift in (("a", 0.0), ("b", 1.0)):
        run = SyntheticRun(tmp_path / side, {"s": [1]})
        with run.step():
            for name in ("z.out", "m.out", "a.out"):
                run.add(name, [[1.0 + shift]])
        run.close()
        dumps.append(run.open())
    found = compare(*dumps)
    assert [t.tap for t in found.taps] == ["z.out", "m.out", "a.out"]
    assert [t.order for t in found.taps] == [0, 1, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_tensor_that_became_nan_or_infinite_differs(tmp_path, bad):
    """Tools that drop NaN from their maxima pass such a tensor."""
    a = simple(tmp_path / "a", np.ones((2, 4)))
    b = simple(tmp_path / "b", np.full((2, 4), bad))
    found = compare(a, b)
    assert tap(found).nonfinite_mismatches == 8
    assert tap(found).differing_rows == 2
    assert exit_codes.of_comparison(found) == 1


def test_another_row_length_is_listed_on_both_sides(tmp_path):
    a = simple(tmp_path / "a", np.ones((2, 4)))
    b = simple(tmp_path / "b", np.ones((2, 5)))
    found = compare(a, b)
    assert [(u.side, u.rows) for u in found.unmatched] == [("a", 2), ("b", 2)]
    assert found.unmatched[0].reason == "row length 4 in A, 5 in B: [1, 2, 4] against [1, 2, 5]"
    assert exit_codes.of_comparison(found) == 3


def test_equal_values_of_another_dtype_are_a_difference(tmp_path):
    a = simple(tmp_path / "a", np.ones((2, 4)))
    b = simple(tmp_path / "b", np.ones((2, 4)), dtype="bfloat16")
    found = compare(a, b)
    assert tap(found).differing_elements == 0
    assert not tap(found).equal
    assert exit_codes.of_comparison(found) == 1


def test_a_tap_that_one_run_lacks_counts(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT))
    run = SyntheticRun(tmp_path / "b", PROMPT)
    with run.step():
        run.add("tokens.in", [[t] for t in PROMPT["p#0"]], "b t", dtype="int64")
    run.close()
    found = compare(a, run.open())
    assert {u.reason for u in found.unmatched} == {"B has no such tap", "B holds no row there"}
    assert exit_codes.of_comparison(found) == 3


def test_a_recomputed_position_says_so(tmp_path):
    dumps = []
    for side, times in (("a", 1), ("b", 2)):
        run = SyntheticRun(tmp_path / side, {"s": [1]})
        for _ in range(times):
            with run.step():
                run.add("x.out", [[1.0]])
        run.close()
        dumps.append(run.open())
    (alone,) = compare(*dumps).unmatched
    assert (alone.side, alone.reason) == ("b", "A computed it less often")
    assert alone.example == "s position 0, visit 1"


@pytest.mark.parametrize("kept", ["digest", "stats"])
def test_rows_without_words_compare_by_digest(tmp_path, kept):
    draw = np.random.default_rng(3)
    a_values = draw.standard_normal((6, 400))
    b_values = a_values.copy()
    b_values[2] += 1e-2 * draw.standard_normal(400)
    a = simple(tmp_path / "a", a_values, kept=kept)
    same = compare(a, simple(tmp_path / "same", a_values))
    assert tap(same).equal and tap(same).digest_rows == 6
    found = tap(compare(a, simple(tmp_path / "b", b_values, kept=kept)))
    assert (found.differing_rows, found.digest_rows) == (1, 6)
    assert found.first.position == 2 and found.first.element is None
    assert math.isnan(found.max_abs)
    if kept == "digest":
        true = np.linalg.norm(b_values - a_values) / np.linalg.norm(a_values)
        # 16 buckets estimate a squared norm with a standard error of sqrt(2/16): 35 %.
        assert 0.4 * true < found.relative_l2 < 1.6 * true
    else:
        assert math.isnan(found.relative_l2)


def test_the_first_difference_is_the_first_of_a_though_b_came_in_pieces(tmp_path):
    a = simple(tmp_path / "a", np.ones((4, 3)), kept="digest")
    run = SyntheticRun(tmp_path / "b", {"s": [1]})
    for positions in ((2, 3), (0, 1)):
        with run.step():
            run.add("x.out", np.zeros((2, 3)), rows=[("s", p) for p in positions], kept="digest")
    run.close()
    assert tap(compare(a, run.open())).first.position == 0
    assert tap(compare(run.open(), a)).first.position == 2


def test_digests_of_two_dtypes_are_not_compared(tmp_path):
    a = simple(tmp_path / "a", np.ones((2, 4)), kept="digest")
    b = simple(tmp_path / "b", np.ones((2, 4)), kept="digest", dtype="bfloat16")
    found = compare(a, b)
    assert "digests of two dtypes never match" in found.unmatched[0].reason
    assert exit_codes.of_comparison(found) == 3


def test_rows_of_another_text_are_set_apart(tmp_path):
    def choose_another(ids, rows):
        return (ids + 1) % 24 if rows[0][1] == 5 else ids

    a = record(tmp_path / "a", Toy(PROMPT, tokens=3))
    b = record(tmp_path / "b", Toy(PROMPT, tokens=3, faults={"tokens.out": choose_another}))
    found = compare(a, b)
    assert [t.tap for t in found.taps if not t.equal] == ["tokens.in", "tokens.out"]
    assert tap(found, "layers.0.out").rows == 6
    # Two decode steps of 28 taps, less the one row of tokens.in that shows the parting.
    assert found.other_context_rows == 2 * 28 - 1
    assert "p#0 from position 6 on" in found.notes[0]
    only = compare(a, b, taps=["layers.*"])
    assert exit_codes.of_comparison(only) == 3


def test_a_partial_dump_is_said_to_be_one(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT))
    b = record(tmp_path / "b", Toy(PROMPT, complete=False))
    found = compare(a, b)
    assert (found.complete_a, found.complete_b) == (True, False)
    assert all(t.equal for t in found.taps)
    assert any(note.startswith("B: ") for note in found.notes)
    assert exit_codes.of_comparison(found) == 3


def test_nothing_in_common_is_not_a_pass(tmp_path):
    a = simple(tmp_path / "a", np.ones((1, 4)), rows=[("s", 0)])
    b = simple(tmp_path / "b", np.ones((1, 4)), rows=[("s", 1)])
    found = compare(a, b)
    assert found.rows == 0
    assert exit_codes.of_comparison(found) == 3


def test_a_glob_restricts_the_taps(tmp_path):
    a, b = (record(tmp_path / side, Toy(PROMPT)) for side in "ab")
    found = compare(a, b, taps=["layers.0.*", "logits"])
    assert {t.tap.split(".")[0] for t in found.taps} == {"layers", "logits"}
    assert not any(t.tap.startswith("layers.1") for t in found.taps)


def test_a_glob_that_matches_nothing_is_refused(tmp_path):
    a, b = (record(tmp_path / side, Toy(PROMPT)) for side in "ab")
    with pytest.raises(UsageError, match=r"no tap of either run matches[\s\S]*layer\.\*"):
        compare(a, b, taps=["layer.*"])


@pytest.mark.parametrize("block", [1, 100, 8 << 20])
def test_the_size_of_a_block_changes_no_result(tmp_path, monkeypatch, block):
    draw = np.random.default_rng(1)
    values = draw.standard_normal((40, 30))
    other = values + (draw.random((40, 30)) > 0.9)
    a, b = simple(tmp_path / "a", values), simple(tmp_path / "b", other)
    expected = tap(compare(a, b))
    monkeypatch.setattr(pairs, "BLOCK_BYTES", block)
    found = tap(compare(a, b))
    # Sums of squares are added up by block: the same within rounding, all else the same.
    assert found.relative_l2 == pytest.approx(expected.relative_l2, rel=1e-14, abs=0)
    found.relative_l2 = expected.relative_l2
    assert found == expected


@pytest.mark.parametrize("reader", ["whole", "part", "unmatched"])
def test_a_flipped_bit_is_corruption_and_never_a_difference(tmp_path, reader):
    rows = [("s", p) for p in range(4)]
    a = simple(tmp_path / "a", np.ones((4, 4)), rows=rows)
    other = {"whole": rows, "part": rows[:2], "unmatched": [("s", 9)]}[reader]
    b = simple(tmp_path / "b", np.ones((len(other), 4)), rows=other)
    tensors = next((tmp_path / "a").rglob("tensors.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(CorruptDumpError, match="other words than when it was written"):
        compare(a, b)
