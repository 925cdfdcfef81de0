import ml_dtypes
import numpy as np
import pytest
import torch

from verify.bounds import Bound
from verify.errors import ArgumentError
from verify.pytest_plugin.bitwise import check_bitwise
from verify.pytest_plugin.within import check_within


def test_equal_bits_pass_in_every_kind_of_array():
    for array in (np.arange(6, dtype=np.float32), torch.arange(6).bfloat16().reshape(2, 3), 1.5):
        assert check_bitwise(array, array).passed


def test_numpy_and_torch_arrays_of_one_format_compare():
    words = np.array([0x3F80, 0x4000], np.uint16)
    theirs = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert check_bitwise(words.view(ml_dtypes.bfloat16), theirs).passed


def test_one_ulp_is_found_and_placed():
    a = torch.ones(2, 3, 4, dtype=torch.float16)
    b = a.clone()
    b[1, 2, 3] += 2**-10
    found = check_bitwise(a, b)
    assert not found.passed and found.numbers["max_ulp"] == 1
    text = found.text()
    assert "1 of 24 elements" in text and "[1, 2, 3]" in text
    assert "0x3c00" in text and "0x3c01" in text


def test_sign_of_zero_and_nan_payload_are_bits():
    assert not check_bitwise(np.float32([0.0]), np.float32([-0.0])).passed
    payload = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    found = check_bitwise(payload[:1], payload[1:])
    assert not found.passed and found.numbers["nan"] == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros(3, np.float32), np.zeros(3, np.float16)),
        (np.zeros(3, np.float32), np.zeros((3, 1), np.float32)),
        (np.zeros(0, np.float32), np.zeros(0, np.float32)),
    ],
)
def test_what_cannot_be_compared_never_passes(a, b):
    assert not check_bitwise(a, b).passed
    if a.dtype == b.dtype:
        assert not check_within(a, b, Bound(1.0, "any")).passed


def test_within_names_the_worst_and_the_share_of_the_bound():
    exact = np.linspace(0, 1, 12).reshape(3, 4)
    actual = exact.copy()
    actual[2, 1] += 3e-3
    assert check_within(actual, exact, Bound(4e-3, "four steps")).passed
    found = check_within(actual, exact, Bound(1e-3, "one step"))
    assert not found.passed and found.numbers["broken"] == 1
    assert found.numbers["largest_bound_used"] == pytest.approx(3.0)
    assert "[2, 1]" in found.text() and "one step" in found.text()


def test_within_takes_a_bound_for_each_element():
    exact, bound = np.zeros(3), np.array([1.0, 0.1, 0.0])
    assert check_within(np.array([0.5, 0.1, 0.0]), exact, bound, "given").passed
    found = check_within(np.array([0.5, 0.2, 1e-300]), exact, bound, "given")
    assert found.numbers["broken"] == 2


def test_nan_and_unequal_infinities_break_any_bound():
    loose = Bound(1e300, "anything finite")
    for actual, exact in ((np.nan, 0.0), (np.inf, 0.0), (np.inf, -np.inf), (0.0, np.nan)):
        assert not check_within([actual], [exact], loose).passed
    assert check_within([np.inf], [np.inf], loose).passed


def test_a_bound_without_a_reason_is_refused():
    with pytest.raises(ArgumentError, match="reason"):
        check_within([1.0], [1.0], 1e-3)
    with pytest.raises(ArgumentError, match="does not fit"):
        check_within([1.0, 2.0], [1.0, 2.0], [1.0, 1.0, 1.0], "three for two")
    with pytest.raises(ArgumentError, match=">= 0"):
        check_within([1.0], [1.0], -1.0, "negative")
    with pytest.raises(ArgumentError, match="not an array"):
        check_bitwise(np.array(["x"]), np.array(["x"]))
