"""Declarations of arithmetic: what is refused, how parts are cut."""

import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import AttentionInputs
from verify.reference.replay.arithmetic import (
    Arithmetic,
    Chain,
    prefix_rounded_twice,
    tensor_core_prefill,
    wave_decode,
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile": 24}, r"prefill sm_70.tile\n.*24\n.*a multiple of 16"),
        ({"step": 100}, r"step\n.*100\n.*a multiple of tile"),
        ({"base": "step", "accumulate": "chain"}, r"accumulate\n.*chain\n.*blocks, where P"),
        ({"base": "global"}, r"base\n.*global"),
        ({"probability": "float8_e4m3fn"}, r"probability\n.*float8_e4m3fn\n.*float16"),
        ({"probability": "float32"}, r"probability\n.*float32\n.*16 bits on a tensor core"),
        ({"parts": 2, "roundings": 2}, r"parts\n.*2\n.*rounded once"),
        ({"mass": "both"}, r"mass\n.*both\n.*rounded or unrounded"),
        ({"partition": 0}, r"partition\n.*0\n.*>= 1"),
        ({"partition": "halves"}, r"partition\n.*halves"),
        ({"exp_error": 0.5}, r"exp_error\n.*0.5"),
        ({"output": "int8"}, r"output\n.*int8"),
        ({"scale_fold": "during"}, r"scale_fold\n.*during"),
    ],
)
def test_impossible_arithmetic_is_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        tensor_core_prefill("sm_70", **changes)


def test_chains_that_do_not_exist_are_refused():
    with pytest.raises(ArgumentError, match="sm_61"):
        Chain("tensor_core", "sm_61")
    with pytest.raises(ArgumentError, match="no such accumulation"):
        Chain("fma", output="float16")
    with pytest.raises(ArgumentError, match="no such accumulation"):
        Chain("exact")


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (None, [(0, 100)]),
        (48, [(0, 48), (48, 96), (96, 100)]),
        ("prefix_tail", [(0, 70), (70, 100)]),
    ],
)
def test_ranges_of_the_parts(partition, expected):
    inputs = AttentionInputs(torch.zeros(1, 30, 1, 4), *torch.zeros(2, 1, 100, 1, 4))
    assert tensor_core_prefill("sm_70", partition=partition).ranges(inputs) == expected


def test_the_named_kernels():
    assert prefix_rounded_twice("sm_70").keys_per_step == 8192
    assert wave_decode(256).partition == 256
    assert isinstance(tensor_core_prefill("sm_90"), Arithmetic)
