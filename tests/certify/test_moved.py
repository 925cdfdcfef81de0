"""What only moves values: a cache holds the words that were put there, at their places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verify.certify.moved import judge_moved, only_moves
from verify.dumps.format import Dump, open_dump
from verify.dumps.format.schema import Input
from verify.dumps.importers.observation import Imported, Observation, Source, Tensor
from verify.dumps.importers.writing import write_run
from verify.errors import ArgumentError

OLD, NEW = np.arange(12, dtype=np.float32).reshape(1, 3, 4), np.full((1, 1, 4), 9.0, np.float32)


def seen(tap: str, values: np.ndarray, first: int, inputs: list[int]) -> Observation:
    at = np.arange(first, first + values.shape[1])
    words = Tensor(values.view(np.uint32), "float32")
    return Observation(tap=tap, tensor=words, axes="b t c", positions=at, inputs=inputs)


def run(out: Path, joined: np.ndarray, first: int = 0) -> Dump:
    parts = [seen("old", OLD, 0, []), seen("new", NEW, 3, [])]
    whole = seen("keys", joined, first, [0, 1])
    write_run(Imported(Source(format="test", path=out), iter([*parts, whole])), out)
    return open_dump(out)


def test_rows_of_both_inputs_at_their_places(tmp_path: Path) -> None:
    dump = run(tmp_path / "a", np.concatenate([OLD, NEW], axis=1))
    *_, keys = dump.records()
    assert not only_moves(dump, keys)  # an imported run does not know what its operations were
    keys.ops = ["aten.cat"]
    assert only_moves(dump, keys)
    assert judge_moved(dump, keys) == (True, "only moves the values of old and new")


def test_a_row_that_went_to_another_place_is_a_change(tmp_path: Path) -> None:
    dump = run(tmp_path / "a", np.concatenate([OLD[:, [1, 0, 2]], NEW], axis=1))
    *_, keys = dump.records()
    assert judge_moved(dump, keys) == (False, "changes the values of old and new")


def test_rows_that_nothing_holds_are_not_judged(tmp_path: Path) -> None:
    dump = run(tmp_path / "a", np.concatenate([OLD, NEW], axis=1), first=1)
    *_, keys = dump.records()
    with pytest.raises(ArgumentError, match="rows that no input has"):
        judge_moved(dump, keys)
    keys.inputs = [Input(kind="unknown")]
    with pytest.raises(ArgumentError, match="not recorded"):
        judge_moved(dump, keys)
