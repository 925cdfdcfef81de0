"""Names from dumps: printable, short and never ambiguous."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.support.parts import tap_names
from verify.report.names import printable, quoted, shorten


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("model.layers.0.out", "model.layers.0.out"),
        ("naïve 空", "naïve 空"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\u202eevil", r"\u202eevil"),
        ("\u200bhidden", r"\u200bhidden"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),  # half of a surrogate pair
    ],
)
def test_printable(text: str, wanted: str) -> None:
    assert printable(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [(" sky", '" sky"'), ('"', r'"\""'), ("\\n", r'"\\n"'), ("\n", r'"\n"')]
)
def test_quoted(text: str, wanted: str) -> None:
    assert quoted(text) == wanted


@pytest.mark.parametrize(
    ("name", "width", "wanted"),
    [
        ("model.layers.0.out", 20, "model.layers.0.out"),
        ("model.layers.12.self_attn.attn.in.k", 28, "model…12.self_attn.attn.in.k"),
        ("model.layers.12.self_attn.attn.in.k", 24, "…12.self_attn.attn.in.k"),
        ("model.layers.12.self_attn.attn.in.k", 20, "model…12…attn.in.k"),
        ("model.layers.3.post_attention_layernorm.out", 24, "…3.post_atten…ernorm.out"),
        ("model.embed_tokens.out", 20, "…embed_tokens.out"),
    ],
)
def test_shorten_keeps_the_layer_and_the_end(name: str, width: int, wanted: str) -> None:
    assert shorten([name], width) == {name: wanted}


@pytest.mark.parametrize("width", [12, 16, 20, 28, 40])
def test_no_two_taps_look_alike(width: int) -> None:
    short = shorten(tap_names(), width)
    assert len(set(short.values())) == len(short)


def test_names_that_cannot_be_told_apart_stay_whole() -> None:
    names = ["x" * 60, "x" * 61]
    assert shorten(names, 20) == {name: name for name in names}


# The alphabet is small on purpose: names that share most of their parts are the hard case.
@given(st.lists(st.text("ab.01", min_size=1, max_size=40), max_size=12), st.integers(4, 30))
def test_shorten_never_merges_names(names: list[str], width: int) -> None:
    short = shorten(names, width)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))
    assert all(len(text) <= max(width, len(name)) for name, text in short.items())
