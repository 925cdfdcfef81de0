"""Where differences come from, judged by the recorded edges alone."""

import numpy as np
import pytest

from tests.support.synthetic_dumps import UNKNOWN, SyntheticRun, Value, Weight
from tests.support.toy_runs import Toy, record
from verify.bisect.causal import is_causal
from verify.bisect.origins import find_fronts, find_origins
from verify.compare.run import compare_rows

PROMPT = {"p#0": [1, 2, 3, 4, 5, 6]}


def add(values, rows):
    return values + np.float32(1)


def at(*positions):
    """A fault at some positions only."""

    def fault(values, rows):
        for i, (_, position) in enumerate(rows):
            if position in positions:
                values[i] += 1
        return values

    return fault


def origins(a, b, causal=True):
    return find_origins(compare_rows(a, b), causal)


def toy(tmp_path, faults, **options):
    a = record(tmp_path / "a", Toy(PROMPT))
    return origins(a, record(tmp_path / "b", Toy(PROMPT, faults=faults, **options)))


def taps(places):
    return [place.tap for place in places]


@pytest.mark.parametrize("chunk", [None, 1, 4])
@pytest.mark.parametrize(
    "tap",
    ["embed.out", "layers.0.k_proj.out", "layers.0.attn.in.v", "layers.1.attn.out", "logits"],
)
def test_the_tap_that_was_changed_is_the_only_origin(tmp_path, tap, chunk):
    found = toy(tmp_path, {tap: add}, chunk=chunk)
    assert taps(found.proven) == [tap]
    assert (found.open, found.by_weights, found.unjudged) == ([], [], 0)


def test_execution_order_decides_not_the_order_of_names(tmp_path):
    """`layers.0.attn.out` runs after `layers.0.v_proj.out` and sorts before it."""
    found = toy(tmp_path, {"layers.0.v_proj.out": add})
    assert taps(found.proven) == ["layers.0.v_proj.out"]


def test_two_origins_are_both_found(tmp_path):
    found = toy(tmp_path, {"layers.0.q_proj.out": add, "layers.0.attn.in.v": add})
    assert taps(found.proven) == ["layers.0.q_proj.out", "layers.0.attn.in.v"]


def test_a_later_origin_shows_at_positions_before_an_earlier_one(tmp_path):
    """The first fault spreads to later positions only, so that earlier rows still have equal
    inputs when the second one comes."""
    found = toy(tmp_path, {"layers.0.q_proj.out": at(4), "layers.1.mlp.out": at(1, 5)})
    assert taps(found.proven) == ["layers.0.q_proj.out", "layers.1.mlp.out"]
    first, second = found.proven
    assert first.whole and not second.whole
    assert len(second.at) == 1  # position 5 has inherited inputs


def test_a_fault_behind_another_is_no_origin(tmp_path):
    """The trap: what comes after innocent differences cannot be seen from the edges."""
    found = toy(tmp_path, {"embed.out": add, "layers.1.attn.out": add})
    assert taps(found.proven) == ["embed.out"]
    assert found.inherited > 0


def test_a_fault_in_the_queries_leaves_the_first_position_equal(tmp_path):
    """With one key there is nothing to weigh, so a later fault still shows at position 0."""
    found = toy(tmp_path, {"layers.0.q_proj.out": add, "layers.1.attn.out": add})
    assert taps(found.proven) == ["layers.0.q_proj.out", "layers.1.attn.out"]


def test_without_causality_only_whole_inputs_count(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT))
    faults = {"layers.0.q_proj.out": at(4), "layers.1.mlp.out": at(1)}
    b = record(tmp_path / "b", Toy(PROMPT, faults=faults))
    assert taps(origins(a, b, causal=False).proven) == ["layers.0.q_proj.out"]


def test_a_decode_step_sees_the_keys_of_earlier_steps(tmp_path):
    """Only one key of the prompt differs; in decode steps it is carried, not recorded again."""
    found = toy(tmp_path, {"layers.1.attn.in.k": at(0)})
    assert taps(found.proven) == ["layers.1.attn.in.k"]


def test_weights_are_named_instead_of_the_operation(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT))
    changed = {"layers.1.o.weight": "another"}
    b = record(
        tmp_path / "b",
        Toy(PROMPT, faults={"layers.1.o_proj.out": add}, extra={"weights": changed}),
    )
    found = origins(a, b)
    assert found.proven == []
    assert taps(found.by_weights) == ["layers.1.o_proj.out"]
    assert found.by_weights[0].missing == ["weight layers.1.o.weight"]


def test_without_edges_only_the_first_observation_is_reported(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT, inputs_known=False))
    faults = {"layers.0.k_proj.out": add}
    b = record(tmp_path / "b", Toy(PROMPT, inputs_known=False, faults=faults))
    found = origins(a, b)
    assert found.proven == []
    assert taps(found.open) == ["layers.0.k_proj.out"]
    assert found.unjudged > 0


def chain(path, *, changed=False, inputs=(), weights=None):
    """`x.out`, then `y.out` computed from it and from ``inputs``; ``changed`` changes `y.out`."""
    with SyntheticRun(path, {"s": [1]}, weights=weights or {}) as run, run.step():
        x = run.add("x.out", [[1.0, 2.0]])
        run.add("y.out", [[3.0, 4.0 + changed]], inputs=[x, *inputs])
    return run.open()


@pytest.mark.parametrize(
    ("inputs_a", "inputs_b", "missing"),
    [
        ([UNKNOWN], [UNKNOWN], "A: something was not recorded"),
        ([], [UNKNOWN], "B: something was not recorded"),
        ([Value("bias", "1")], [Value("bias", "2")], "value bias: not the same in both runs"),
        ([Value("bias", "1")], [], "value bias: not the same in both runs"),
        ([Weight("w")], [Weight("w")], "weight w: no digest in both runs"),
    ],
)
def test_what_was_not_recorded_leaves_the_origin_open(tmp_path, inputs_a, inputs_b, missing):
    found = origins(
        chain(tmp_path / "a", inputs=inputs_a),
        chain(tmp_path / "b", inputs=inputs_b, changed=True),
    )
    assert found.proven == []
    assert taps(found.open) == ["y.out"]
    assert missing in found.open[0].missing


def test_equal_values_and_weights_leave_nothing_open(tmp_path):
    inputs = [Value("bias", "1"), Weight("w")]
    dumps = [
        chain(tmp_path / side, inputs=inputs, changed=side == "b", weights={"w": "1"})
        for side in "ab"
    ]
    found = origins(*dumps)
    assert taps(found.proven) == ["y.out"]
    assert found.proven[0].sources == ["x.out", "value bias", "weight w"]


def test_an_input_that_one_run_did_not_record_leaves_it_open(tmp_path):
    dumps = []
    for side in "ab":
        with SyntheticRun(tmp_path / side, {"s": [1]}) as run, run.step():
            names = ["x.out"] if side == "a" else ["x.out", "extra.out"]
            inputs = [run.add(name, [[1.0]]) for name in names]
            run.add("y.out", [[float(side == "b")]], inputs=inputs)
        dumps.append(run.open())
    found = origins(*dumps)
    assert (taps(found.proven), taps(found.open)) == ([], ["y.out"])


def test_a_repeated_record_stands_for_the_one_that_it_repeats(tmp_path):
    """B lacks the tap of the repeated record; its words are known from the first one."""
    dumps = []
    for side in "ab":
        with SyntheticRun(tmp_path / side, {"s": [1]}) as run, run.step():
            x = run.add("x.out", [[1.0]])
            if side == "a":
                x = run.add("x2.in.0", [[1.0]], kept="same", same_as=x, inputs=[x])
            run.add("y.out", [[float(side == "b")]], inputs=[x])
        dumps.append(run.open())
    assert taps(origins(*dumps).proven) == ["y.out"]


def test_fronts_begin_where_nothing_before_is_marked(tmp_path):
    a = record(tmp_path / "a", Toy(PROMPT))
    compared = compare_rows(
        a, record(tmp_path / "b", Toy(PROMPT, faults={"layers.0.mlp.out": add}))
    )
    x = compared.alignment
    given = np.array([r.tap == "tokens.in" for r in x.a.records])[x.a.record[x.rows_a]]
    differing = np.flatnonzero((compared.measures.differing > 0) & ~given)
    assert taps(find_fronts(compared, differing)) == ["layers.0.mlp.out"]


@pytest.mark.parametrize(("last", "causal"), [(0, True), (1, False)])
def test_masks_tell_whether_rows_read_ahead(tmp_path, last, causal):
    with SyntheticRun(tmp_path / "a", {"s": [1, 2]}) as run, run.step():
        mask = [[0, last, 1 + last], [0, 1, 2]]
        run.add("l.attn.in.mask", mask, "b t c", dtype="int64")
    assert is_causal(compare_rows(run.open(), run.open()).alignment.a) is causal
