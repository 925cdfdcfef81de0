"""Expected against observed flips, nearness of choices, and sizes by tap, as both renderers say it."""

import re

import msgspec
import pytest

from tests.report.support import cases
from verify.bisect.result import Finding, Flips, Verdict
from verify.report.html.page import render_page
from verify.report.words import flip_lines, size_text, token_reasons


@pytest.fixture
def counted():
    result = cases.unresolved()
    near = ["", "near tie", "unlikely", "exact tie", "exact tie"]
    tokens = [
        msgspec.structs.replace(token, closeness=kind, flip_chance=0.5)
        for token, kind in zip(result.tokens, near, strict=True)
    ]
    flips = Flips(
        positions=5, observed=1, expected=0.25, sigma=0.1, p_more=0.22, ties=2, sure=[], left_out=2
    )
    return msgspec.structs.replace(result, tokens=tokens, first_token=tokens[4], flips=flips)


def test_flips_are_counted_and_told_by_nearness(counted):
    said = flip_lines(counted)
    assert said[0].startswith("1 flip in 5 choices; 0.250 expected")
    assert "2 choices with an exact tie, of which 1 flipped." in said
    assert "1 choice with a near tie (margin up to 3 sigma), of which 0 flipped." in said
    assert not any("3 to 6 sigma" in line for line in said)  # none of those flipped
    assert said[-1] == "2 choices left out: no logits to compare."


def test_the_page_says_the_same(counted):
    page = re.sub(r"<[^>]+>", " ", render_page(counted, []))
    for line in flip_lines(counted):
        assert line in page


def test_the_first_flip_is_told_how_near_it_was(counted):
    assert any("rounding of this size flips it with a chance of 0.500" in text
               for text in token_reasons(counted.first_token))  # fmt: skip


def test_nothing_is_said_without_logits_that_moved(counted):
    flips = msgspec.structs.replace(counted.flips, sigma=0.0)
    assert flip_lines(msgspec.structs.replace(counted, flips=None)) == []
    assert flip_lines(msgspec.structs.replace(counted, flips=flips)) == []


def test_sizes_are_a_range_with_its_ends_named():
    sizes = {f"model.layers.{i}.self_attn.attn.in.k": 0.01 * (i + 1) for i in range(3)}
    finding = Finding(verdict=Verdict.PRECISION, title="", reasons=[], sizes=sizes)
    text = size_text(finding)
    assert text.startswith("0.0100 (") and " to 0.0300 (" in text
    assert "0.self_attn.attn.in.k" in text and "2.self_attn.attn.in.k" in text
    assert size_text(msgspec.structs.replace(finding, sizes={"a": 1.0})) == ""
