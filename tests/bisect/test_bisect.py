"""Planted causes, and what the whole tool makes of them."""

import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun
from tests.support.toy_runs import HEAD_DIM, Toy, record
from verify.bisect.local import LocalFinding
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.bounds import Bound
from verify.dumps.format.schema import Tape
from verify.errors import CorruptDumpError

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}
NATIVE, E4M3 = {"kv_cache": "native"}, {"kv_cache": "e4m3"}


def pair(tmp_path, toy_b, toy_a=None, **options):
    a = record(tmp_path / "a", toy_a or Toy(PROMPT))
    return bisect(a, record(tmp_path / "b", toy_b), **options)


def verdicts(result):
    return [finding.verdict for finding in result.findings]


def one_ulp(values, rows):
    return np.nextafter(values, np.float32(np.inf))


def last_key_missing(values, rows):
    """One head's output without its newest key, as far as size goes: a wrong mixture."""
    values[1:, :HEAD_DIM] *= np.float32(0.9)
    return values


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(Toy(PROMPT), id="repeat"),
        pytest.param(Toy(PROMPT, chunk=4), id="chunked"),
        pytest.param(Toy(PROMPT, chunk=1), id="one position a step"),
    ],
)
def test_equal_runs_are_identical(tmp_path, same):
    result = pair(tmp_path, same)
    assert (result.verdict, result.exit_code, result.findings) == (Verdict.IDENTICAL, 0, [])
    assert result.summary == (
        "Every bit of 28 taps in 214 rows is equal, and so are all 3 chosen tokens."
    )
    assert result.origins == []
    assert all(value == 0.0 for row in result.heatmap[0].values for value in row)


def test_a_batch_against_one_of_its_sequences_is_incomplete(tmp_path):
    result = pair(tmp_path, Toy({**PROMPT, "p#1": PROMPT["p#0"]}))
    assert (verdicts(result), result.exit_code) == ([Verdict.INCOMPLETE], 3)
    assert result.findings[0].title == "B ran 1 sequence more than A"
    assert "A ran no such sequence" in result.findings[0].reasons[0]


@pytest.mark.parametrize("shorter", ["A", "B"])
def test_a_run_that_stopped_earlier_is_equal_as_far_as_both_go(tmp_path, shorter):
    toys = Toy(PROMPT, tokens=5), Toy(PROMPT, tokens=3)
    result = pair(tmp_path, *(toys if shorter == "A" else toys[::-1]))
    longer = "B" if shorter == "A" else "A"
    assert (verdicts(result), result.exit_code) == ([Verdict.INCOMPLETE], 3)
    assert result.findings[0].title == f"{shorter} stopped earlier: {longer} went on for 2 steps"
    assert result.summary.endswith(
        f"all 3 chosen tokens, as far as both runs go: "
        f"{shorter} stopped earlier: {longer} went on for 2 steps."
    )
    rows = f"56 rows of {longer} (tokens.in and 27 more taps; p#0 position 8)"
    assert result.not_compared == [f"{rows}: {shorter} holds no row there"]
    accepted = pair(tmp_path / "2", *toys, accept=[Verdict.INCOMPLETE])
    assert accepted.exit_code == 0 and accepted.verdict is Verdict.INCOMPLETE


def test_a_longer_run_with_a_difference_is_judged_by_the_difference(tmp_path):
    toy = Toy(PROMPT, tokens=5, faults={"layers.1.attn.out": last_key_missing})
    result = pair(tmp_path, toy)
    assert (result.verdict, result.exit_code) == (Verdict.DEFECT, 1)
    assert Verdict.INCOMPLETE in verdicts(result)


def test_rows_missing_in_the_middle_are_no_shorter_run(tmp_path):
    with SyntheticRun(tmp_path / "a", {"s": [1, 2, 3]}) as a, a.step():
        a.add("x.out", [[1.0], [2.0], [3.0]])
    with SyntheticRun(tmp_path / "b", {"s": [1, 2, 3]}) as b, b.step():
        b.add("x.out", [[1.0], [3.0]], rows=[("s", 0), ("s", 2)])
    result = bisect(a.open(), b.open())
    assert (verdicts(result), result.exit_code) == ([Verdict.INCOMPLETE], 3)
    assert result.findings[0].title == "Not everything could be compared"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("chunk", [None, 4])
def test_small_differences_in_attention_are_unresolved(tmp_path, dtype, chunk):
    """Nothing has measured that they are rounding, so nobody may call them that."""
    fault = {"layers.0.attn.out": one_ulp if dtype == "float32" else bf16_step}
    result = pair(
        tmp_path, Toy(PROMPT, dtype=dtype, faults=fault, chunk=chunk), Toy(PROMPT, dtype=dtype)
    )
    assert (result.verdict, result.exit_code) == (Verdict.UNRESOLVED, 1)
    (origin,) = result.origins
    assert origin.tap == "layers.0.attn.out" and origin.proven
    before = [t for t in result.comparison.taps if t.order < origin.order]
    assert len(before) > 5 and all(t.equal for t in before)
    assert "were not checked on their own" in result.findings[-1].title


def bf16_step(values, rows):
    return values * np.float32(1 + 2**-7)


def test_a_declared_cast_is_precision_and_names_the_setting(tmp_path):
    result = pair(
        tmp_path,
        Toy(PROMPT, kv_cast="float8_e4m3fn", settings=E4M3),
        Toy(PROMPT, settings=NATIVE),
    )
    assert (result.verdict, result.exit_code) == (Verdict.PRECISION, 1)
    assert [o.tap for o in result.origins] == ["layers.0.attn.in.k", "layers.0.attn.in.v"]
    finding = result.findings[0]
    assert finding.title == (
        "B holds layers.0.attn.in.k and layers.0.attn.in.v of A rounded to float8_e4m3fn"
    )
    assert "the settings declare it (kv_cache: native against e4m3)" in finding.reasons
    assert finding.support == "all 8 positions; all 2 heads, all 8 channels"


def test_a_cast_that_no_setting_declares_is_unresolved(tmp_path):
    result = pair(tmp_path, Toy(PROMPT, kv_cast="float8_e4m3fn"))
    assert result.verdict is Verdict.UNRESOLVED
    assert "a cast to float8_e4m3fn that no setting declares" in result.findings[0].title


def test_accepting_precision_leaves_what_nobody_checked(tmp_path):
    toys = (
        Toy(PROMPT, kv_cast="float8_e4m3fn", settings=E4M3),
        Toy(PROMPT, settings=NATIVE),
    )
    accepted = pair(tmp_path / "1", *toys, accept=[Verdict.PRECISION])
    assert (accepted.verdict, accepted.exit_code) == (Verdict.PRECISION, 1)
    assert "accepted: --accept PRECISION was given" in accepted.findings[0].reasons
    assert not any("accepted" in reason for reason in accepted.findings[1].reasons)
    both = [Verdict.PRECISION, Verdict.UNRESOLVED]
    assert pair(tmp_path / "2", *toys, accept=both).exit_code == 0
    assert pair(tmp_path / "3", *toys, accept=both, fail_on_flip=True).exit_code == 1


def test_a_defect_in_attention_is_named_by_its_size(tmp_path):
    result = pair(tmp_path, Toy(PROMPT, faults={"layers.1.attn.out": last_key_missing}))
    finding = result.findings[0]
    assert (result.verdict, result.exit_code) == (Verdict.DEFECT, 1)
    assert finding.taps == ["layers.1.attn.out"]
    assert finding.support == "positions 1 to 5 (5 of 8); head 0 of 2, all 8 channels"
    assert finding.numbers["bound used"] > 100


def test_the_same_defect_in_bfloat16_is_not_called_rounding(tmp_path):
    fault = {"layers.1.attn.out": last_key_missing}
    result = pair(
        tmp_path, Toy(PROMPT, dtype="bfloat16", faults=fault), Toy(PROMPT, dtype="bfloat16")
    )
    assert result.verdict in (Verdict.DEFECT, Verdict.UNRESOLVED)
    assert result.origins[0].tap == "layers.1.attn.out"


def test_a_move_that_changes_values_is_a_defect(tmp_path):
    result = pair(tmp_path, Toy(PROMPT, faults={"layers.0.attn.in.v": last_key_missing}))
    assert result.verdict is Verdict.DEFECT
    assert result.findings[0].taps == ["layers.0.attn.in.v"]
    assert "only move values" in result.findings[0].reasons[0]


def test_two_causes_are_two_findings(tmp_path):
    faults = {"layers.0.q_proj.out": one_ulp, "layers.0.attn.in.v": last_key_missing}
    result = pair(tmp_path, Toy(PROMPT, faults=faults))
    assert verdicts(result) == [Verdict.DEFECT, Verdict.UNRESOLVED, Verdict.UNRESOLVED]
    assert [o.tap for o in result.origins] == ["layers.0.q_proj.out", "layers.0.attn.in.v"]


def infinite(values, rows):
    values[-1, 3] = np.inf
    return values


def test_an_overflow_is_found_at_the_infinity_and_not_at_the_nan_after_it(tmp_path):
    result = pair(tmp_path, Toy(PROMPT, faults={"layers.0.o_proj.out": infinite}))
    assert (result.verdict, result.exit_code) == (Verdict.OVERFLOW, 1)
    finding = result.findings[0]
    assert finding.taps == ["layers.0.o_proj.out"]
    assert "values leave the range of their format here first" in finding.title
    assert any(t.nonfinite_mismatches for t in result.comparison.taps if t.tap == "layers.1.out")


def test_an_overflow_behind_innocent_differences_is_a_finding_of_its_own(tmp_path):
    faults = {"layers.0.q_proj.out": one_ulp, "layers.1.mlp.out": infinite}
    result = pair(tmp_path, Toy(PROMPT, faults=faults))
    assert verdicts(result)[0] is Verdict.OVERFLOW
    assert result.findings[0].taps == ["layers.1.mlp.out"]
    assert [o.tap for o in result.origins] == ["layers.0.q_proj.out"]


def test_a_nan_out_of_finite_attention_inputs_is_a_defect(tmp_path):
    def nan(values, rows):
        values[-1, :4] = np.nan
        return values

    result = pair(tmp_path, Toy(PROMPT, faults={"layers.1.attn.out": nan}))
    assert result.verdict is Verdict.DEFECT
    assert result.findings[0].taps == ["layers.1.attn.out"]


def test_tokens_that_differ_on_equal_logits_are_post_logits(tmp_path):
    def another(ids, rows):
        return (ids + 1) % 24 if rows[0][1] == 6 else ids

    result = pair(tmp_path, Toy(PROMPT, faults={"tokens.out": another}))
    assert (result.verdict, result.exit_code) == (Verdict.POST_LOGITS, 1)
    assert result.first_token.index == 1
    assert result.first_token.logit_shift == 0.0
    assert "p#0 from position 7 on" in result.not_compared[0]


def test_other_weights_are_a_finding_and_the_search_goes_on(tmp_path):
    toy = Toy(
        PROMPT,
        faults={"layers.1.o_proj.out": one_ulp},
        extra={"weights": {"layers.1.o.weight": "changed"}},
    )
    result = pair(tmp_path, toy)
    titles = [finding.title for finding in result.findings]
    assert result.verdict is Verdict.UNRESOLVED
    assert "1 of 11 weights differ" in titles
    assert result.comparison.rows > 0
    assert result.origins[0].tap == "layers.1.o_proj.out" and not result.origins[0].proven


def test_a_run_in_another_dtype_is_a_declared_cast(tmp_path):
    result = pair(tmp_path, Toy(PROMPT, dtype="bfloat16"), Toy(PROMPT))
    assert result.verdict is Verdict.PRECISION
    assert result.confounders[0].name == "settings.dtype"
    assert result.origins[0].fits[0].startswith("B is A rounded to bfloat16")


def test_an_unrecorded_input_leaves_the_origin_open(tmp_path):
    faults = {"layers.0.mlp.out": one_ulp}
    result = pair(
        tmp_path,
        Toy(PROMPT, inputs_known=False, faults=faults),
        Toy(PROMPT, inputs_known=False),
    )
    assert result.verdict is Verdict.UNRESOLVED
    (origin,) = result.origins
    assert (origin.tap, origin.proven) == ("layers.0.mlp.out", False)
    assert result.findings[0].title.startswith("First observed at layers.0.mlp.out")


@pytest.mark.parametrize(("faults", "code"), [({}, 3), ({"layers.0.mlp.out": one_ulp}, 1)])
def test_a_partial_dump_is_not_identical(tmp_path, faults, code):
    result = pair(tmp_path, Toy(PROMPT, complete=False, faults=faults))
    assert result.exit_code == code
    assert "B is a partial dump: its run did not come to its end" in result.findings[-1].reasons


def test_a_checker_that_answers_takes_taps_off_the_unchecked(tmp_path):
    def checker(op):
        return LocalFinding(op.a.tap, Verdict.ROUNDING, "replayed", Bound(1.0, "a test"), 0.5, 0, 0)

    toy = Toy(PROMPT, faults={"layers.0.q_proj.out": one_ulp})
    result = pair(tmp_path, toy, checkers=[checker])
    assert set(verdicts(result)) == {Verdict.ROUNDING}
    assert (result.verdict, result.exit_code) == (Verdict.ROUNDING, 0)


def test_a_declared_cast_in_all_layers_is_one_finding_with_its_sizes(tmp_path):
    def checker(op):
        cast = op.place.tap.split(".")[-2:] in (["in", "k"], ["in", "v"])
        cast = cast and "attn" in op.place.tap
        verdict = Verdict.PRECISION if cast else Verdict.ROUNDING
        title = "a cast to float8_e4m3fn" if cast else ""
        return LocalFinding(
            op.place.tap, verdict, "replayed", Bound(1.0, "a test"), 0.5, 0, 0, title, 0.02
        )

    toys = (
        Toy(PROMPT, kv_cast="float8_e4m3fn", settings=E4M3),
        Toy(PROMPT, settings=NATIVE),
    )
    result = pair(tmp_path, *toys, checkers=[checker])
    cast, *rest = result.findings
    assert cast.taps == [f"layers.{i}.attn.in.{kv}" for i in (0, 1) for kv in "kv"]
    assert list(cast.sizes) == cast.taps and cast.sizes["layers.1.attn.in.v"] == 0.02
    assert {finding.verdict for finding in rest} == {Verdict.ROUNDING}


def test_nan_behind_other_differences_that_a_check_accuses_is_one_finding(tmp_path):
    def nan(values, rows):
        values[-1, :4] = np.nan
        return values

    def checker(op):
        verdict = Verdict.DEFECT if op.place.tap == "layers.1.mlp.out" else Verdict.ROUNDING
        return LocalFinding(op.place.tap, verdict, "replayed", Bound(1.0, "a test"), 2.0, 0, 0)

    faults = {"layers.0.q_proj.out": one_ulp, "layers.1.mlp.out": nan}
    result = pair(tmp_path, Toy(PROMPT, faults=faults), checkers=[checker])
    about = [f for f in result.findings if "layers.1.mlp.out" in f.taps]
    assert [f.verdict for f in about] == [Verdict.DEFECT]
    assert "elements are NaN in B (float32) only" in about[0].reasons[0]


@pytest.mark.parametrize(
    ("value", "verdict"), [(np.inf, Verdict.OVERFLOW), (np.nan, Verdict.UNRESOLVED)]
)
@pytest.mark.parametrize("differ", [False, True])
def test_both_runs_not_finite_is_never_a_pass(tmp_path, value, verdict, differ):
    def broken(values, rows):
        values[-1, 3] = value
        return values

    a = Toy(PROMPT, faults={"layers.1.mlp.out": broken})
    small = {"layers.0.q_proj.out": one_ulp} if differ else {}
    result = pair(tmp_path, Toy(PROMPT, faults={**a.faults, **small}), a)
    (finding,) = [f for f in result.findings if f.title.startswith("Both runs are not finite")]
    assert finding.title == "Both runs are not finite from layers.1.mlp.out on"
    assert (finding.verdict, finding.taps) == (verdict, ["layers.1.mlp.out"])
    assert result.exit_code == 1 and result.verdict is verdict


def test_damage_is_raised_and_never_reported_as_a_difference(tmp_path):
    record(tmp_path / "a", Toy(PROMPT))
    b = record(tmp_path / "b", Toy(PROMPT))
    tensors = next((tmp_path / "b").rglob("tensors.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(CorruptDumpError):
        bisect(b, b)


def manifest_only(path, sequences=None, **options):
    with SyntheticRun(path, sequences or {"s": [1, 2, 3]}, **options) as run, run.step():
        run.add("x.out", [[1.0]])
    return run.open()


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        pytest.param(
            {"sequences": {"s": [1, 2, 3]}},
            {"sequences": {"s": [1, 9, 3]}},
            "prompt token 1 of s is 2 in A and 9 in B",
            id="prompt",
        ),
        pytest.param(
            {"sequences": {"s": [1, 2, 3]}},
            {"sequences": {"s": [1, 2]}},
            "the prompt of s has 3 tokens in A and 2 in B",
            id="length",
        ),
        pytest.param(
            {"sequences": {"x": [0, 1, 2]}},
            {"sequences": {"y": [1, 3]}},
            "prompt token 0 of the first sequence is 0 in A and 1 in B",
            id="no common sequence",
        ),
        pytest.param(
            {"tape": Tape(run_id="r1", digest="1")},
            {"tape": Tape(run_id="r2", digest="2")},
            "A was forced along r1, B along r2, and the tokens differ",
            id="tape",
        ),
        pytest.param(
            {"config": {"num_hidden_layers": 2}},
            {"config": {"num_hidden_layers": 3}},
            "num_hidden_layers is 2 in A and 3 in B",
            id="layers",
        ),
        pytest.param(
            {"architecture": "Llama"},
            {"architecture": "Gemma"},
            "architecture Llama in A, Gemma in B",
            id="architecture",
        ),
    ],
)
def test_runs_that_cannot_be_compared_say_why_and_blame_nothing(tmp_path, a, b, reason):
    result = bisect(manifest_only(tmp_path / "a", **a), manifest_only(tmp_path / "b", **b))
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    assert reason in result.findings[0].reasons
    assert result.origins == [] and result.comparison.rows == 0


def test_nothing_in_common_is_not_identical(tmp_path):
    a = manifest_only(tmp_path / "a")
    with SyntheticRun(tmp_path / "b", {"s": [1, 2, 3]}) as run, run.step():
        run.add("y.out", [[1.0]])
    result = bisect(a, run.open())
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    assert result.findings[0].title == "Nothing could be compared"


@pytest.mark.parametrize("side", ["A", "B"])
def test_a_run_whose_layers_all_hold_the_same_bits_is_a_broken_capture(tmp_path, side):
    dumps = {}
    for name in "AB":
        with SyntheticRun(tmp_path / name, {"s": [1]}) as run, run.step():
            for layer in range(3):
                value = 1.0 if name == side else float(layer)
                run.add(f"layers.{layer}.out", [[value, 2.0]])
        dumps[name] = run.open()
    result = bisect(dumps["A"], dumps["B"])
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, 3)
    assert result.findings[0].title == f"All layers of run {side} hold the same bits"
