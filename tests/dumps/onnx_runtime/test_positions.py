"""Positions of rows: those that the inputs state, or a refusal."""

from __future__ import annotations

import numpy as np
import pytest

from verify.dumps.onnx_runtime.observe import positions_of
from verify.errors import ModelError


def test_positions_are_those_given_or_count_from_zero() -> None:
    assert positions_of({}, 2, 3).tolist() == [0, 1, 2]
    assert positions_of({"position_ids": np.array([[4, 5, 6]])}, 2, 3).tolist() == [4, 5, 6]
    assert positions_of({"attention_mask": np.ones((2, 3), np.int64)}, 2, 3).tolist() == [0, 1, 2]
    assert positions_of({"past_key_values.0.key": np.zeros((1, 1, 0, 8))}, 1, 2).tolist() == [0, 1]


@pytest.mark.parametrize(
    "inputs",
    [
        {"attention_mask": np.array([[0, 1, 1]])},
        {"position_ids": np.array([[0, 1, 2], [1, 2, 3]])},
        {"position_ids": np.zeros((3, 2, 3), np.int64)},
        {"past_key_values.0.key": np.zeros((1, 1, 5, 8))},
    ],
)
def test_rows_without_one_position_are_refused(inputs: dict[str, np.ndarray]) -> None:
    with pytest.raises(ModelError, match="no positions"):
        positions_of(inputs, 2, 3)
