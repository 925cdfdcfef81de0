"""What an attention reference refuses, and what its messages say."""

import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import AttentionInputs, Row, attend

Q, KV = (1, 2, 4, 8), (1, 6, 2, 8)


def make(q=Q, k=KV, v=KV, **options):
    return AttentionInputs(torch.zeros(q), torch.zeros(k), torch.zeros(v), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": (2, 4, 8)}, r"not a tensor of attention\n.*q\n.*\[2, 4, 8\]"),
        ({"k": (1, 0, 2, 8), "v": (1, 0, 2, 8)}, r"\[1, 0, 2, 8\]\n.*no dimension of 0"),
        ({"q": (1, 2, 4, 0), "k": (1, 6, 2, 0)}, r"\[1, 2, 4, 0\]\n.*no dimension of 0"),
        ({"k": (1, 6, 2, 16)}, r"where:\s+k\n.*found:\s+16\n.*8, the head_dim of q"),
        ({"k": (2, 6, 2, 8), "v": (2, 6, 2, 8)}, "batch of q"),
        ({"v": (1, 5, 2, 8)}, r"\(1, 5, 2\)\n.*\(1, 6, 2\), the batch, tokens and heads of k"),
        ({"q": (1, 2, 5, 8)}, r"5 heads\n.*a multiple of the 2 heads of k"),
        ({"scale": float("nan")}, r"scale\n.*nan\n.*a finite number"),
        ({"scale": float("inf")}, r"scale\n.*inf\n.*a finite number"),
        ({"k_scale": 0.0}, r"k_scale\n.*0.0\n.*above 0"),
        ({"v_scale": float("inf")}, r"v_scale\n.*inf"),
        ({"softcap": -1.0}, r"softcap\n.*-1.0"),
        ({"window": 0}, r"window\n.*0\n.*>= 1"),
        ({"window": 3, "causal": False}, r"window\n.*3\n.*None unless causal"),
        ({"sinks": torch.zeros(3)}, r"sinks\n.*\[3\]\n.*\[4\], one a head"),
        ({"kv_lengths": (1, 2)}, r"kv_lengths\n.*\(1, 2\)\n.*1 lengths"),
        ({"kv_lengths": (7,)}, r"kv_lengths\n.*\(7,\)\n.*0\.\.6"),
    ],
)
def test_bad_arguments_are_named_with_what_is_allowed(options, message):
    with pytest.raises(ArgumentError, match=message):
        make(**options)


def test_integers_are_not_attention():
    with pytest.raises(ArgumentError, match=r"torch\.int8"):
        AttentionInputs(torch.zeros(Q), torch.zeros(KV, dtype=torch.int8), torch.zeros(KV))


@pytest.mark.parametrize("row", [(0, 2, 0), (0, 0, 4), (-1, 0, 0)])
def test_a_row_outside_is_refused(row):
    with pytest.raises(ArgumentError, match="no such query row"):
        attend(make(), [Row(*row)])


def test_no_rows_is_refused():
    with pytest.raises(ArgumentError, match="no query rows"):
        attend(make(), [])


@pytest.mark.parametrize(
    ("options", "token", "expected"),
    [
        ({}, 0, (0, 5)),
        ({}, 1, (0, 6)),
        ({"causal": False}, 0, (0, 6)),
        ({"window": 2}, 0, (3, 5)),
        ({"window": 9}, 1, (0, 6)),
        ({"kv_lengths": (1,)}, 0, (0, 0)),
        ({"kv_lengths": (4,)}, 1, (0, 4)),
    ],
)
def test_visible_keys(options, token, expected):
    assert make(**options).visible(Row(0, token, 0)) == expected
