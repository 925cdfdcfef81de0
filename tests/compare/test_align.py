"""Rows match by what they are, never by where they stand."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.synthetic_dumps import SyntheticRun
from verify.compare.align import align, rows_by_pair
from verify.compare.pairs import read_entries
from verify.formats import decode


def run(path, steps, tap="x.out", axes="b t d", numbers=None, **options):
    """A run of one tap. ``steps``: for each step the rows (sequence, position); every row holds
    its own identity as numbers (``numbers`` in place of the positions)."""
    with SyntheticRun(path, {"s": [1], "r": [1]}, **options) as synthetic:
        for rows in steps:
            with synthetic.step():
                seconds = numbers or [p for _, p in rows]
                values = [[ord((s or "p")[0]), n] for (s, _), n in zip(rows, seconds, strict=True)]
                synthetic.add(tap, np.reshape(values, (-1, 2)), axes, rows=rows)
    return synthetic.open()


def matched(a, b):
    """Identities of the matched rows, after checking that both sides hold the same words."""
    found = align(a, b)
    words = [
        decode(read_entries(i, e), "float32").tolist() if len(e) else []
        for i, e in ((found.a, found.rows_a), (found.b, found.rows_b))
    ]
    assert words[0] == words[1]
    return found, [(chr(int(s)), int(p)) for s, p in words[0]]


def positions(*numbers, sequence="s"):
    return [(sequence, number) for number in numbers]


WHOLE = [positions(*range(6))]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([positions(0, 1, 2, 3), positions(4, 5)], id="chunked"),
        pytest.param([positions(n) for n in range(6)], id="one position a step"),
        pytest.param(
            [[*positions(*range(6)), *positions(*range(6), sequence="r")]], id="in a batch"
        ),
        pytest.param([[(None, 0), (None, 1), *positions(*range(6))]], id="left-padded"),
        pytest.param([positions(5, 4, 3, 2, 1, 0)], id="in another order"),
    ],
)
def test_the_same_rows_match_however_they_were_computed(tmp_path, other):
    found, rows = matched(run(tmp_path / "a", WHOLE), run(tmp_path / "b", other))
    assert rows == positions(*range(6))
    assert not len(found.alone_a)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_cut_and_any_order_of_rows_aligns(tmp_path_factory, data):
    rows = [(s, p) for s in "sr" for p in range(data.draw(st.integers(1, 6)))]
    runs = []
    for side in "ab":
        shuffled = data.draw(st.permutations(rows))
        cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
        steps = [list(part) for part in np.split(np.arange(len(rows)), cuts)]
        steps = [[shuffled[i] for i in part] for part in steps]
        runs.append(run(tmp_path_factory.mktemp("any") / side, [s for s in steps if s]))
    found, matching = matched(*runs)
    assert sorted(matching) == sorted(rows)
    assert not len(found.alone_a) and not len(found.alone_b)


def test_positions_too_large_to_pack_align_as_well(tmp_path):
    far = 2**62
    rows = [("s", 0), ("r", 0), ("s", far), ("r", far + 1)]
    found = align(*(run(tmp_path / side, [rows], numbers=range(4)) for side in "ab"))
    assert found.rows_a.tolist() == found.rows_b.tolist() == [0, 1, 2, 3]


def test_padding_is_never_matched(tmp_path):
    a, b = (run(tmp_path / side, [[(None, 0), ("s", 0)]]) for side in "ab")
    found, rows = matched(a, b)
    assert rows == [("s", 0)]
    assert not len(found.alone_a) and not len(found.repeated_a)


def test_visits_tell_recomputed_rows_apart(tmp_path):
    """A keeps a cache, B computes everything again at every step."""
    a = run(tmp_path / "a", [positions(0, 1), positions(2)])
    b = run(tmp_path / "b", [positions(0, 1), positions(0, 1, 2)])
    found, rows = matched(a, b)
    assert rows == positions(0, 1, 2)
    assert [found.b.visit[e] for e in found.rows_b] == [0, 0, 0]
    assert [found.b.visit[e] for e in found.alone_b] == [1, 1]


def test_taps_and_sequences_do_not_match_across(tmp_path):
    a = run(tmp_path / "a", [positions(0)], tap="x.out")
    assert matched(a, run(tmp_path / "b", [positions(0)], tap="y.out"))[1] == []
    assert matched(a, run(tmp_path / "c", [positions(0, sequence="r")]))[1] == []


def test_exchanged_ranks_are_not_paired_away(tmp_path):
    found = []
    for side in "ab":
        path = tmp_path / side
        # Rank 0 last: it completes the manifest from what the others left.
        for rank in (1, 0):
            with SyntheticRun(path, {"s": [1]}, run_id=side, rank=rank, ranks=2) as synthetic:
                with synthetic.step():
                    value = rank if side == "a" else 1 - rank
                    synthetic.add("x.out", [[value]], rows=positions(0))
                if rank:
                    continue
        found.append(synthetic.open())
    alignment = align(*found)
    ids = [
        read_entries(i, e).tolist()
        for i, e in ((alignment.a, alignment.rows_a), (alignment.b, alignment.rows_b))
    ]
    assert len(alignment.rows_a) == 2
    assert ids[0] != ids[1]


def test_an_identity_that_occurs_twice_is_not_guessed(tmp_path):
    a, b = (run(tmp_path / side, [[("s", 0), ("s", 1)]]) for side in "ab")
    synthetic = SyntheticRun(tmp_path / "c", {"s": [1]})
    with synthetic.step():
        synthetic.add("x.out", [[115, 0], [115, 1]], rows=positions(0, 1))
        synthetic._occurrences.clear()
        synthetic._visits.clear()
        synthetic.add("x.out", [[115, 1]], rows=positions(1))
    synthetic.close()
    found, rows = matched(a, synthetic.open())
    assert rows == positions(0)
    assert len(found.repeated_b) == 2
    assert len(align(a, b).repeated_a) == 0


def test_rows_of_one_pair_of_records_come_together_in_execution_order(tmp_path):
    a = run(tmp_path / "a", WHOLE)
    b = run(tmp_path / "b", [positions(3, 4, 5), positions(0, 1, 2)])
    alignment = align(a, b)
    pairs = [(x, y, rows.tolist()) for x, y, rows in rows_by_pair(alignment, np.arange(6))]
    assert pairs == [(0, 0, [3, 4, 5]), (0, 1, [0, 1, 2])]
