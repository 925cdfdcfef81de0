"""Runs as a map presents them, where the runs are small enough to be written by hand."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.synthetic_dumps import SyntheticRun, Weight
from verify.bisect.run import bisect
from verify.compare.run import compare
from verify.dumps.format import open_dump
from verify.dumps.format.schema import Input
from verify.errors import ArgumentError, CorruptDumpError
from verify.taps.apply import Mapped, apply_map
from verify.taps.edges import MOST, Origin
from verify.taps.load import parse_map

HEAD = 'format = "verify-tap-map"\nversion = 1\nname = "x"\na = "A"\nb = "B"\n'
SPLIT = (
    HEAD
    + """
[sizes]
one = "2"
two = "1"

[[tap]]
a = "one.out"
b = "both.out"
split = ["one", "two"]
take = "one"

[[tap]]
a = "two.out"
b = "both.out"
split = ["one", "two"]
take = "two"

[[tap]]
a = "end"
b = ["x", "y"]
join = "add"
"""
)
IDS = [[5], [3]]
ONE, TWO = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0], [6.0]])
X, Y = np.array([[1.0], [0.1]]), np.array([[2.0], [0.2]])


def run_a(path: Path, two: np.ndarray = TWO, **options) -> Path:
    with SyntheticRun(path, {"s": [5, 3]}, run_id="a", **options) as run, run.step():
        ids = run.add("tokens.in", IDS, "b t", dtype="int64")
        one = run.add("one.out", ONE, inputs=[ids], ops=["aten.mm"])
        second = run.add("two.out", two, inputs=[ids], ops=["aten.mm"])
        end = (X.astype(np.float32) + Y.astype(np.float32)).astype(np.float64)
        run.add("end", end, inputs=[one, second], ops=["aten.add"])
    return path


def run_b(path: Path, inputs_of_hidden: bool = True, y_rows=None, **options) -> Path:
    with SyntheticRun(path, {"s": [5, 3]}, run_id="b", **options) as run, run.step():
        ids = run.add("tokens.in", IDS, "b t", dtype="int64")
        hidden = run.add("hidden", ONE, inputs=[ids] if inputs_of_hidden else [], ops=["aten.mm"])
        both = run.add("both.out", np.hstack([ONE, TWO]), inputs=[hidden], ops=["aten.mm"])
        x = run.add("x", X, inputs=[both], ops=["aten.relu"])
        run.add("y", Y, inputs=[x], ops=["aten.relu"], rows=y_rows)
    return path


def mapped(a: Path, b: Path, text: str = SPLIT) -> Mapped:
    return apply_map(open_dump(a), open_dump(b), parse_map(text, "map.toml"))


def by_tap(x: Mapped) -> dict[str, object]:
    return {record.tap: record for record in x.b.records()}


def test_parts_and_sums_are_compared_bit_for_bit(tmp_path):
    x = mapped(run_a(tmp_path / "a"), run_b(tmp_path / "b"))
    result = compare(x.a, x.b)
    assert [t.tap for t in result.taps] == ["tokens.in", "one.out", "two.out", "end"]
    assert not any(tap.differing_rows for tap in result.taps)
    assert [(u.side, u.tap) for u in result.unmatched] == [("b", "hidden")]


def test_a_part_reads_what_the_fused_tap_read_before_open_ones(tmp_path):
    x = mapped(run_a(tmp_path / "a"), run_b(tmp_path / "b"))
    records = by_tap(x)
    (source,) = records["one.out"].inputs
    assert x.b.record(source.seq).tap == "tokens.in"
    assert records["one.out"].ops == ["aten.mm"]
    assert {x.b.record(i.seq).tap for i in records["end"].inputs} == {"one.out", "two.out"}
    assert records["end"].ops == ["aten.relu", "aten.add"]


def test_an_open_tap_without_inputs_leaves_its_readers_unknown(tmp_path):
    x = mapped(run_a(tmp_path / "a"), run_b(tmp_path / "b", inputs_of_hidden=False))
    (source,) = by_tap(x)["one.out"].inputs
    assert (source.kind, source.name) == ("unknown", "hidden")


def test_a_differing_part_is_the_origin_and_the_other_part_is_not(tmp_path):
    x = mapped(run_a(tmp_path / "a", two=TWO * 1.001), run_b(tmp_path / "b"))
    origins = {origin.tap: origin.proven for origin in bisect(x.a, x.b).origins}
    assert origins == {"two.out": True}


def test_sums_of_different_rows_are_not_made_and_said_so(tmp_path):
    rows = [("s", 0), ("s", 2)]
    x = mapped(run_a(tmp_path / "a"), run_b(tmp_path / "b", y_rows=rows))
    assert "end" not in by_tap(x)
    assert x.not_made == {"end": "x and y hold different rows"}
    assert any("hold different rows" in note for note in x.b.problems)


def test_two_ranks_keep_their_edges(tmp_path):
    for rank in (1, 0):  # rank 0 completes the dump
        run_a(tmp_path / "a", two=TWO * (1 + 0.001 * rank), rank=rank, ranks=2)
        run_b(tmp_path / "b", rank=rank, ranks=2)
    x = mapped(tmp_path / "a", tmp_path / "b")
    result = compare(x.a, x.b)
    assert {tap.tap for tap in result.taps if tap.differing_rows} == {"two.out"}
    assert result.rows == 2 * 8
    parts = [r for r in x.b.records() if r.tap == "end"]
    assert [r.rank for r in parts] == [0, 1]
    for record in parts:
        read = {x.b.record(i.seq, record.rank).tap for i in record.inputs}
        assert read == {"one.out", "two.out"}
    assert [(o.tap, o.inputs) for o in bisect(x.a, x.b).origins] == [("two.out", ["tokens.in"])]


def test_a_flipped_bit_behind_a_map_is_corruption(tmp_path):
    a, b = run_a(tmp_path / "a"), run_b(tmp_path / "b")
    tensors = next((tmp_path / "b").rglob("tensors.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(CorruptDumpError):
        x = mapped(a, b)
        compare(x.a, x.b)


def test_weights_of_parts_and_reordered_ones(tmp_path):
    text = (
        SPLIT
        + """
[[weight]]
a = "one.weight"
b = "both.weight"
split = ["one", "two"]
take = "one"

[[weight]]
a = "turned.weight"
b = "other.weight"
reordered = true

[[alone]]
side = "b"
weight = "table"
why = "a table"
"""
    )
    a = run_a(tmp_path / "a", weights={"one.weight": "1", "turned.weight": "2"})
    known = {"both.weight": "9", "both.weight[0:2]": "1", "other.weight": "3", "table": "4"}
    x = mapped(a, run_b(tmp_path / "b", weights=known), text)
    assert x.a.manifest.model.weights == x.b.manifest.model.weights == {"one.weight": "1"}
    notes = "\n".join(x.b.problems)
    assert "weights not compared: other.weight: its values stand in another order" in notes
    assert "weights not compared: table: a table" in notes


def test_a_fused_weight_without_digests_of_its_parts_is_not_taken_for_equal(tmp_path):
    weight = '\n[[weight]]\na = "one.weight"\nb = "both.weight"\nsplit = ["one", "two"]\n'
    b = SyntheticRun(tmp_path / "b", {"s": [5, 3]}, weights={"both.weight": "9"})
    with b as run, run.step():
        both = [run.add("tokens.in", IDS, "b t", dtype="int64"), Weight("both.weight")]
        run.add("both.out", np.hstack([ONE + 1, TWO]), inputs=both, ops=["aten.mm"])
    a = SyntheticRun(tmp_path / "a", {"s": [5, 3]}, weights={"one.weight": "1"})
    with a as run, run.step():
        one = [run.add("tokens.in", IDS, "b t", dtype="int64"), Weight("one.weight")]
        run.add("one.out", ONE, inputs=one, ops=["aten.mm"])
    x = mapped(tmp_path / "a", tmp_path / "b", SPLIT + weight + 'take = "one"\n')
    (origin,) = bisect(x.a, x.b).origins
    assert (origin.tap, origin.proven) == ("one.out", False)
    assert "no digest in both runs" in origin.judged


def test_sizes_that_do_not_fit_the_run_are_refused(tmp_path):
    a, b = run_a(tmp_path / "a"), run_b(tmp_path / "b")
    with pytest.raises(ArgumentError, match=r"one 3 \+ two 1 = 4"):
        mapped(a, b, SPLIT.replace('one = "2"', 'one = "3"'))
    with pytest.raises(ArgumentError, match="not known"):
        mapped(a, b, SPLIT.replace('one = "2"', 'one = "head_dim"'))


def chain(length: int) -> Origin:
    """What keys stand for after so many steps, each with one input of its own."""
    last = Origin()
    for step in range(length):
        found = Origin()
        found.add(Input(kind="record", seq=step))
        found.follow(last)
        last = found
    return last


def test_keys_of_all_steps_are_inputs_as_far_as_they_are_listed():
    assert {i.seq for i in chain(100).inputs} == set(range(100))
    long = chain(2 * MOST).inputs
    assert len(long) == MOST + 1
    assert (long[-1].kind, long[-1].name) == ("unknown", "keys of earlier steps")


def test_a_reader_of_open_keys_reads_what_all_of_them_were_made_of(tmp_path):
    """B's keys have no counterpart; attention reads the projections of both steps instead."""
    for name in ("a", "b"):
        run = SyntheticRun(tmp_path / name, {"s": [5, 3]}, run_id=name)
        keys: list[int] = []
        with run:
            for step in range(2):
                here = [("s", step)]
                with run.step():
                    ids = run.add("tokens.in", [[5 + step]], "b t", dtype="int64", rows=here)
                    k = run.add("k", X[:1] + step, inputs=[ids], ops=["aten.mm"], rows=here)
                    if name == "b":
                        read = [k, *keys[-1:]]
                        keys.append(run.add("held", X[:1] + step, "b s d", inputs=read, rows=here))
                    core = keys[-1:] or [k]
                    run.add("out", Y[:1] + step, inputs=core, ops=["aten.mm"], rows=here)
    x = mapped(tmp_path / "a", tmp_path / "b", HEAD)
    last = [record for record in x.b.records() if record.tap == "out"][-1]
    assert [(x.b.record(i.seq).tap, x.b.record(i.seq).step) for i in last.inputs] == [
        ("k", 1), ("k", 0)
    ]  # fmt: skip
