"""Two outputs of one problem: conventions, who is closer, and differences beyond both budgets."""

from dataclasses import replace

import pytest
import torch

from verify.reference.attention import AttentionInputs
from verify.reference.certificates.attention import certify_attention_pair
from verify.reference.certificates.attention.pair import conventions
from verify.reference.certificates.result import Outcome
from verify.reference.replay.arithmetic import tensor_core_prefill, wave_decode

V100 = tensor_core_prefill("sm_70", accumulate="chain")
H200 = tensor_core_prefill("sm_90")


def quantised(keys=1024, k_scale=0.0123, v_scale=3.14159):
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, n, 1, 32, generator=generator) for n in (4, keys, keys))
    codes = [(x * 100).to(torch.float8_e4m3fn) for x in (k, v / 50)]
    return AttentionInputs(q.half(), *codes, k_scale=k_scale, v_scale=v_scale, causal=False)


def test_two_devices_are_explained(problem, simulate):
    inputs = problem(mean=1.0)
    outputs = [simulate(inputs, rule) for rule in (V100, H200)]
    found = certify_attention_pair(*outputs, inputs, V100, H200, inputs.all_rows())
    assert found.outcome is Outcome.EXPLAINED, found.reasons
    assert found.conventions == ()
    assert found.numbers["difference"] > 0.0
    assert found.reasons[0].startswith(("A is closer to FP64", "B is closer to FP64"))


def test_scales_folded_elsewhere_are_precision(simulate):
    inputs = quantised()
    rules = [replace(H200, scale_fold=fold) for fold in ("after", "before")]
    outputs = [simulate(inputs, rule) for rule in rules]
    found = certify_attention_pair(*outputs, inputs, *rules, inputs.all_rows())
    assert found.outcome is Outcome.PRECISION, found.reasons
    assert found.conventions == ("scale_fold after against before",)
    assert "declared conventions differ: scale_fold after against before" in found.reasons
    assert found.numbers["closer"] == -1.0  # scales that are never rounded are the more accurate


def test_an_undeclared_fold_is_no_rounding(simulate):
    """The same outputs, both declared alike: the side that folds before is a defect."""
    inputs = quantised()
    outputs = [simulate(inputs, replace(H200, scale_fold=fold)) for fold in ("after", "before")]
    found = certify_attention_pair(*outputs, inputs, H200, H200, inputs.all_rows())
    assert found.outcome is Outcome.DEFECT
    assert all(check.name.startswith("B: ") for check in found.failed)


def test_exact_scales_leave_no_convention(simulate):
    inputs = quantised(k_scale=0.125, v_scale=2.0)
    rules = [replace(H200, scale_fold=fold) for fold in ("after", "before")]
    outputs = [simulate(inputs, rule) for rule in rules]
    assert torch.equal(*outputs)
    found = certify_attention_pair(*outputs, inputs, *rules, inputs.all_rows())
    assert found.outcome is Outcome.EXPLAINED
    assert found.numbers["closer"] == 0.0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mass": "unrounded"}, ("mass rounded against unrounded",)),
        ({"parts": 2}, ("parts 1 against 2",)),
    ],
)
def test_conventions_are_named(problem, simulate, changes, named):
    inputs = problem(mean=1.0, seed=2)
    other = replace(H200, **changes)
    outputs = [simulate(inputs, rule) for rule in (H200, other)]
    assert not torch.equal(*outputs)
    found = certify_attention_pair(*outputs, inputs, H200, other, inputs.all_rows())
    assert found.outcome is Outcome.PRECISION, found.reasons
    assert found.conventions == named


def test_a_faulty_side_is_named(problem, simulate):
    inputs = problem()
    right = simulate(inputs, V100)
    wrong = simulate(replace(inputs, scale=inputs.softmax_scale * (1 + 2.0**-6)), H200)
    found = certify_attention_pair(right, wrong, inputs, V100, H200, inputs.all_rows())
    assert found.outcome is Outcome.DEFECT
    sides = {check.name.split(":")[0] for check in found.failed}
    assert sides <= {"B", "difference within both budgets"}
    assert any("softmax scale off by a factor of 1.015" in reason for reason in found.reasons)
    assert found.numbers["closer"] == -1.0


def test_order_and_hardware_are_no_conventions(problem):
    inputs = problem()
    assert conventions(V100, replace(H200, partition=64), inputs) == []
    named = conventions(H200, wave_decode(64), inputs)
    assert named == [
        "mass rounded against unrounded", "probability float16 against float32",
    ]  # fmt: skip
