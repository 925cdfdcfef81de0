"""What the rules of a map do to rows, against the same written by hand."""

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.formats import decode, encode
from verify.taps.columns import columns, interleaved_to_halves
from verify.taps.load import load_map, parse_map, shipped_maps
from verify.taps.patterns import fill, match
from verify.taps.plan import plan
from verify.taps.sizes import Sizes, sizes_of
from verify.taps.types import TapMap, TapRule
from verify.taps.words import added

CONFIG = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
SIZES = Sizes(
    {"q": "num_attention_heads * head_dim", "k": "num_key_value_heads * head_dim", "v": "k"},
    sizes_of([CONFIG]),
    "test",
)
HEAD = 'format = "verify-tap-map"\nversion = 1\nname = "x"\na = "A"\nb = "B"\n'


def rule(**fields: object) -> TapRule:
    return TapRule(**{"a": "a", "b": "b", **fields})


def test_a_part_of_a_fused_row_is_the_slice_of_its_sizes():
    row = np.arange(32 + 16 + 16)
    for take, start, stop in (("q", 0, 32), ("k", 32, 48), ("v", 48, 64)):
        found = columns(rule(split=["q", "k", "v"], take=take), len(row), SIZES)
        assert np.array_equal(row[found], row[start:stop])


def test_parts_that_do_not_fill_the_row_are_refused():
    with pytest.raises(ArgumentError, match=r"q 32 \+ k 16 \+ v 16 = 64"):
        columns(rule(split=["q", "k", "v"], take="q"), 65, SIZES)


def test_interleaved_heads_follow_the_converter_of_gguf():
    """The converter reshapes rows to (head, 2, d/2), swaps the last two axes and flattens."""
    heads, dim = 3, 8
    halves = np.arange(heads * dim)
    gguf = halves.reshape(heads, 2, dim // 2).swapaxes(1, 2).reshape(-1)
    assert np.array_equal(gguf[interleaved_to_halves(len(gguf), dim, dim)], halves)
    found = columns(rule(heads="interleaved"), 24, SIZES)
    assert np.array_equal(gguf[found], halves)
    back = columns(rule(heads="halves"), 24, SIZES)
    assert np.array_equal(halves[back], gguf)


def test_only_the_turned_channels_of_a_head_move():
    found = columns(rule(heads="interleaved", rotary_dim="4"), 8, SIZES)
    assert found.tolist() == [0, 2, 1, 3, 4, 5, 6, 7]


def test_axes_are_exchanged():
    row = np.arange(32).reshape(8, 4)  # B: [channel, head]
    found = columns(rule(dims=["head_dim", "num_attention_heads"], order=[1, 0]), 32, SIZES)
    assert np.array_equal(row.reshape(-1)[found], row.T.reshape(-1))


def test_columns_are_cut():
    assert columns(rule(columns=["1", "1 + k"]), 32, SIZES).tolist() == list(range(1, 17))
    with pytest.raises(ArgumentError, match="does not fit"):
        columns(rule(columns=["0", "33"]), 32, SIZES)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_sum_is_rounded_once_to_the_dtype(dtype: str):
    rng = np.random.default_rng(0)
    x, y = (encode(rng.standard_normal((4, 50)) * s, dtype) for s in (1.0, 300.0))
    exact = decode(x, dtype) + decode(y, dtype)
    assert np.array_equal(added([x, y], dtype), encode(exact, dtype))
    assert not np.array_equal(decode(added([x, y], dtype), dtype), exact)


def test_patterns_carry_numbers():
    assert match("m.{n}.out", "m.12.out") == {"n": 12}
    assert match("m.{n+1}.out", "m.12.out") == {"n": 11}
    assert match("m.{n+1}.out", "m.0.out") is None
    assert match("m.{n}.out", "m.x.out") is None
    assert match("m.{n}.out", "m.1.out.1") is None
    assert match("{n}.{n}", "1.2") is None
    assert fill("m.{n-1}.{k}", {"n": 3, "k": 5}) == "m.2.5"


def test_sizes_are_sums_and_products_of_the_configuration():
    assert SIZES.value("v") == 16
    assert SIZES.value("(q + 2 * k) // 4") == 16
    assert sizes_of([{"hidden_size": 64, "num_attention_heads": 4}])["head_dim"] == 16
    assert sizes_of([{"text_config": {"hidden_size": 8}}])["hidden_size"] == 8
    for text in ("nothing", "q.bit_length()", "q / 2", "__import__('os')", "1 +", "q // 0"):
        with pytest.raises(ArgumentError):
            SIZES.value(text)
    with pytest.raises(ArgumentError):
        Sizes({"x": "y", "y": "x"}, {}, "test").value("x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not TOML"),
        (HEAD + '[[tap]]\na = "x"\nb = "y"\nturn = 1\n', "turn"),
        (HEAD + '[[tap]]\na = "x.{n}"\nb = "y"\n', "{n}"),
        (HEAD + '[[tap]]\na = "x"\nb = "y.{n}"\n', "same numbers"),
        (HEAD + '[[tap]]\na = "x"\nb = ["y", "z"]\n', "join"),
        (HEAD + '[[tap]]\na = "x"\nb = "y"\nsplit = ["q"]\ntake = "q"\n', "sizes"),
        (HEAD + '[[tap]]\na = "x"\nb = "y"\ntake = "q"\n', "belong together"),
        (HEAD + '[[tap]]\na = "x"\nb = "y"\ndims = ["1", "2"]\norder = [0, 0]\n', "no order"),
        (HEAD + '[[alone]]\nside = "a"\nwhy = "w"\n', "one of tap"),
        (HEAD.replace("version = 1", "version = 2"), "version"),
    ],
)
def test_a_map_that_is_none_is_refused(text: str, message: str):
    with pytest.raises(ArgumentError, match=message):
        parse_map(text, "map.toml")


def test_every_shipped_map_reads_and_is_named_like_its_file():
    assert shipped_maps()
    for name in shipped_maps():
        assert load_map(name).name == name
    with pytest.raises(ArgumentError, match="no tap map of that name"):
        load_map("no-such-map")


def test_the_first_rule_whose_taps_are_there_counts():
    tap_map = parse_map(
        HEAD
        + '[[tap]]\na = "x.{n}"\nb = ["p.{n}", "r.{n}"]\njoin = "add"\n'
        + '[[tap]]\na = "x.{n}"\nb = "q.{n}"\n'
        + '[[tap]]\na = "end"\nb = "q.{last}"\n'
        + '[[alone]]\nside = "b"\ntap = "z*"\nwhy = "nothing like it"\n',
        "map.toml",
    )
    found = plan(
        tap_map,
        ["x.0", "x.1", "x.2", "end", "s"],
        ["p.0", "r.0", "p.1", "q.0", "q.1", "q.2", "q.10", "s", "z9", "x.2", "t"],
    )
    made = {derived.tap: derived.sources for derived in found.derived}
    assert made == {"x.0": ("p.0", "r.0"), "x.1": ("q.1",), "x.2": ("q.2",), "end": ("q.10",)}
    assert found.same == ["s"]
    assert list(found.alone) == ["z9"]
    # x.2 of B is not x.2 of A, which another tap provides: it may not stand under that name.
    assert found.open == {"p.1": "p.1", "q.0": "q.0", "x.2": "B: x.2", "t": "t"}


def test_an_empty_map_keeps_all_names():
    tap_map = TapMap(format="verify-tap-map", version=1, name="", a="", b="")
    assert plan(tap_map, ["x"], ["x", "y"]).same == ["x"]
