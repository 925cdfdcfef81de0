"""Declared layouts: their spelling, and how parts go together."""

from __future__ import annotations

import numpy as np
import pytest

from verify.dumps.format.schema import Record
from verify.dumps.layout import Layout, Layouts, parse_layouts
from verify.errors import ArgumentError
from verify.ranks.groups import Group, shard_columns


@pytest.mark.parametrize("text", ["replicated", "partial", "shard:0", "shard:-1"])
def test_a_layout_is_spelled_as_it_is_read(text: str) -> None:
    assert str(Layout.parse(text)) == text


@pytest.mark.parametrize("text", ["", "shard", "shard:", "shard:x", "sharded:1", "partial:2"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="unknown layout"):
        Layout.parse(text)


def test_the_first_glob_that_matches_counts() -> None:
    layouts = Layouts({"*.attn.out": "shard:1", "*": "replicated"})
    assert str(layouts.of("layers.0.attn.out")) == "shard:1"
    assert str(layouts.of("norm.out")) == "replicated"
    assert parse_layouts(["*.a=b.out=partial"]) == {"*.a=b.out": "partial"}
    with pytest.raises(ArgumentError, match="not a layout"):
        parse_layouts(["partial"])


def record(rank: int, axes: str, shape: list[int]) -> Record:
    return Record(
        seq=0, step=0, tap="x", axes=axes, dtype="float32", shape=shape, strides=[1] * len(shape),
        rank=rank,
    )  # fmt: skip


@pytest.mark.parametrize(("axis", "sizes"), [(0, (2, 2)), (1, (3, 1, 2)), (2, (4, 5))])
def test_parts_of_any_free_dimension_go_together(axis: int, sizes: tuple[int, ...]) -> None:
    """Rows of `b t h c d`, cut along one of the last three axes, uneven cuts among them."""
    whole = [1, 7, 4, 6, 9]
    whole[2 + axis] = sum(sizes)
    tensor = np.random.default_rng(0).random(whole)
    cuts = np.split(tensor, np.cumsum(sizes)[:-1], axis=2 + axis)
    group = Group(tuple(record(r, "b t h c d", [*cut.shape]) for r, cut in enumerate(cuts)))
    order, shape = shard_columns(group, 2 + axis)
    assert shape == whole
    rows = np.concatenate([cut.reshape(7, -1) for cut in cuts], axis=1)
    assert np.array_equal(rows[:, order], tensor.reshape(7, -1))


def test_ranks_with_other_positions_are_refused() -> None:
    group = Group(tuple(record(r, "b t c", [1, 3, 4]) for r in range(2)))
    with pytest.raises(ArgumentError, match="different positions"):
        shard_columns(group, 1)
