"""Names of rows: positions, visits, and what the key axis counts."""

from __future__ import annotations

import numpy as np
import pytest

from verify.dumps.capture.positions import PositionTracker
from verify.errors import ArgumentError


def test_padding_has_no_name():
    step = PositionTracker().begin(np.array([[-1, 0, 1], [0, 1, 2]]), ["x", "y"])
    names = step.row_names()
    assert list(names.sequence) == [None, "x", "x", "y", "y", "y"]
    assert list(names.position) == [-1, 0, 1, 0, 1, 2]


def test_chosen_columns_are_named_alone():
    step = PositionTracker().begin(np.array([[0, 1, 2], [5, 6, 7]]), ["x", "y"])
    names = step.row_names(np.array([2]))
    assert list(zip(names.sequence, names.position, strict=True)) == [("x", 2), ("y", 7)]
    assert len(step.row_names(np.array([], int))) == 0


def test_visits_count_by_sequence_and_position():
    tracker = PositionTracker()
    tracker.begin(np.array([[0, 1]]), ["x"])
    tracker.begin(np.array([[0, 1]]), ["y"])
    step = tracker.begin(np.array([[1, 2]]), ["x"])
    assert step.visits.tolist() == [[1, 0]]


def test_the_key_axis_grows_with_a_cache():
    tracker = PositionTracker()
    tracker.begin(np.array([[-1, 0, 1]]), ["x"], cached=0)
    step = tracker.begin(np.array([[2]]), ["x"], cached=3)
    assert step.keys.positions.tolist() == [[-1, 0, 1, 2]]
    assert step.keys.columns(4) == (0, 4)  # a growing cache
    assert step.keys.columns(2) == (2, 4)  # a sliding one holds the last
    assert step.keys.columns(9) == (0, 4)  # a preallocated one has them in front


def test_an_emptied_cache_starts_the_key_axis_again():
    tracker = PositionTracker()
    first = tracker.begin(np.array([[0, 1]]), ["x"], cached=0)
    second = tracker.begin(np.array([[0]]), ["x"], cached=0)
    assert second.keys.positions.tolist() == [[0]]
    assert second.keys.generation != first.keys.generation


def test_a_cache_filled_before_the_capture_counts_from_zero():
    step = PositionTracker().begin(np.array([[3]]), ["x"], cached=3)
    assert step.keys.positions.tolist() == [[0, 1, 2, 3]]


def test_positions_continue_for_the_same_batch_only():
    tracker = PositionTracker()
    tracker.begin(np.array([[0, 1, 2]]), ["x"])
    assert tracker.next_positions(1, 2).tolist() == [[3, 4]]
    assert tracker.next_positions(2, 2).tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("positions", "names", "message"),
    [
        (np.array([0, 1]), ["x"], "positions"),
        (np.array([[0, 1]]), ["x", "y"], "one sequence id a batch row"),
        (np.array([[0, 1, 1]]), ["x"], "computes a position of a sequence twice"),
        (np.array([[0], [0]]), ["x", "x"], "two rows of a step have the same sequence id"),
    ],
)
def test_a_step_that_makes_no_sense(positions, names, message):
    with pytest.raises(ArgumentError, match=message):
        PositionTracker().begin(positions, names)


def test_rows_of_a_flattened_batch_name_themselves():
    tracker = PositionTracker()
    tracker.begin(np.array([[0, 1]]), ["x"])
    step = tracker.begin_flat(np.array([1, 2, 0, 7]), ["x", "x", "y", None])
    names = step.row_names()
    assert names.sequence.tolist() == ["x", "x", "y", None]
    assert names.position.tolist() == [1, 2, 0, -1]
    assert names.visit.tolist() == [1, 0, 0, 0]
    assert (step.batch, step.tokens) == (1, 4)
    assert step.row_names(np.array([1, 2])).sequence.tolist() == ["x", "y"]


def test_a_flattened_batch_that_contradicts_itself():
    tracker = PositionTracker()
    with pytest.raises(ArgumentError, match="a sequence id a row"):
        tracker.begin_flat(np.array([0, 1]), ["x"])
    with pytest.raises(ArgumentError, match="twice"):
        tracker.begin_flat(np.array([0, 0]), ["x", "x"])
