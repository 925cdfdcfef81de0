"""The same reference and certificates on a CUDA device: within the printed bound of the CPU's."""

import pytest
import torch

from verify.reference.attention import AttentionInputs, attend
from verify.reference.certificates.attention import certify_attention
from verify.reference.certificates.result import Outcome
from verify.reference.replay.arithmetic import tensor_core_prefill
from verify.reference.replay.attention import replay

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def moved(inputs):
    q, k, v = (tensor.cuda() for tensor in (inputs.q, inputs.k, inputs.v))
    return AttentionInputs(
        q, k, v, causal=inputs.causal, window=inputs.window, softcap=inputs.softcap,
        sinks=inputs.sinks, k_scale=inputs.k_scale, v_scale=inputs.v_scale,
        kv_lengths=inputs.kv_lengths,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options", [{}, {"window": 9, "with_sinks": True, "softcap": 3.0}, {"value_mean": 1.0}]
)
def test_cuda_agrees_with_the_cpu(problem, options):
    inputs = problem(tokens_kv=300, **options)
    here, there = attend(inputs), attend(moved(inputs))
    gap = (here.output - there.output.cpu()).abs()
    assert bool((gap <= here.bound + there.bound.cpu()).all())
    # Two orders of summing the same few hundred FP64 terms: about 300 * 2^-53 apart.
    assert torch.allclose(here.spread, there.spread.cpu(), rtol=1e-12, atol=1e-15)


def test_certificates_run_on_cuda(problem):
    inputs = problem(tokens_kv=300, heads=(2, 1))
    rule = tensor_core_prefill("sm_90", partition=128)
    output = torch.from_numpy(replay(inputs, rule).output).cuda()
    found = certify_attention(output, moved(inputs), rule, inputs.all_rows(), replay=True)
    assert found.outcome is Outcome.EXPLAINED, found.reasons
