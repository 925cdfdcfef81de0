"""Wrong input is refused with the value found and what is allowed."""

import numpy as np
import pytest

from verify.errors import ArgumentError
from verify.reference.layers.accumulate import FmaChain
from verify.reference.layers.activations import activation, gated
from verify.reference.layers.arithmetic import Arithmetic
from verify.reference.layers.linear import linear
from verify.reference.layers.lookup import embedding, residual_add
from verify.reference.layers.norms import layer_norm, rms_norm
from verify.reference.layers.rope import inverse_frequencies, rope, rope_tables
from verify.reference.layers.softmax import softmax
from verify.reference.layers.truncate import TensorCore

X = np.ones((2, 8))
TABLE = np.ones((4, 8))

REFUSED = {
    "eps that is not finite": (lambda: rms_norm(X, eps=float("nan")), "found:   nan"),
    "eps below zero": (lambda: layer_norm(X, eps=-1e-6), "finite and >= 0"),
    "eps as text": (lambda: rms_norm(X, eps="1e-6"), "found:   '1e-6'"),
    "weight of another width": (lambda: rms_norm(X, np.ones(7), eps=1e-6), r"\[hidden\] = \(8,\)"),
    "bias of another width": (lambda: layer_norm(X, bias=np.ones(9), eps=1e-5), r"shape \(9,\)"),
    "unknown cast": (lambda: rms_norm(X, eps=1e-6, cast="never"), "after-weight, before-weight"),
    "no last axis": (lambda: rms_norm(np.float64(1.0), eps=1e-6), "at least one axis"),
    "an empty axis": (lambda: rms_norm(np.ones((2, 0)), eps=1e-6), "every axis at least 1"),
    "complex values": (lambda: softmax(X * 1j), "complex128"),
    "inner axes that differ": (lambda: linear(X, np.ones((3, 7))), r"weight \[out, in\]"),
    "unknown operands": (lambda: linear(X, TABLE, operands="fp8"), "as-stored, tf32"),
    "unknown function": (lambda: activation(X, function="relu"), "silu, gelu, gelu-tanh"),
    "gate and up that differ": (lambda: gated(X, X[:1]), "the shape of gate"),
    "a scale that is not finite": (lambda: softmax(X, scale=float("inf")), "found:   inf"),
    "a scale of zero": (lambda: softmax(X, scale=0.0), "finite and > 0"),
    "an id out of range": (lambda: embedding([0, 4], TABLE), r"ids\[1\]"),
    "ids that are not integers": (lambda: embedding([0.5], TABLE), "integer dtypes"),
    "an infinite embedding scale": (lambda: embedding([0], TABLE, scale=np.inf), "scale"),
    "one term": (lambda: residual_add(X), "two terms or more"),
    "an odd number of rotated elements": (lambda: inverse_frequencies(7, 1e4), "even sizes"),
    "a theta of one": (lambda: inverse_frequencies(8, 1.0), "finite and > 1"),
    "no source of angles": (lambda: rope_tables([0]), "neither"),
    "two sources of angles": (
        lambda: rope_tables([0], theta=1e4, rotated=8, inv_freq=np.ones(4)),
        "both",
    ),
    "a table that is too wide": (lambda: rope(X, np.ones((2, 5)), np.ones((2, 5))), "at most half"),
    "a table without a head axis": (
        lambda: rope(np.ones((3, 2, 8)), np.ones((4, 4)), np.ones((4, 4))),
        r"\[batch, 1, tokens, dim / 2\]",
    ),
    "unknown pairing": (lambda: rope(X, TABLE[:2, :4], TABLE[:2, :4], pairing="odd"), "half"),
    "a chain of no products": (lambda: FmaChain(block=0), ">= 1"),
    "an unknown order": (lambda: FmaChain(order="random"), "ascending, any"),
    "a tensor core of no products": (lambda: TensorCore(0, 23), ">= 1"),
    "an accumulation by name": (lambda: Arithmetic("fp32"), "FmaChain"),
    "an unknown storage format": (lambda: softmax(X, store="half"), "float16"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case):
    call, pattern = REFUSED[case]
    with pytest.raises(ArgumentError, match=pattern):
        call()
