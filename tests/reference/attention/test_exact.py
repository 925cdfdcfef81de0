"""The mpmath oracle: two precisions agree, and it takes the bits of any input dtype."""

import mpmath
import pytest
import torch

from verify.errors import ArgumentError
from verify.reference.attention import AttentionInputs, Row
from verify.reference.attention.exact import attend_exact


def test_two_precisions_agree(problem):
    inputs = problem(with_sinks=True, softcap=2.0)
    rows = [Row(0, 4, 0), Row(0, 0, 3)]
    low, high = (attend_exact(inputs, rows, precision=bits) for bits in (120, 240))
    for a, b in zip(low.output[0] + low.output[1], high.output[0] + high.output[1], strict=True):
        assert abs(a - b) < mpmath.mpf(2) ** -110  # 37 keys of |v| < 4: 2^(2-120) * 37 * 4


def test_agrees_with_mpmath_term_by_term(problem):
    """Written once more from the formula, with plain mpf arithmetic."""
    inputs = problem(heads=(1, 1), tokens_kv=6, dim=3, causal=False)
    found = attend_exact(inputs, [Row(0, 2, 0)], precision=150).output[0]
    q, k, v = (x[0].double() for x in (inputs.q, inputs.k, inputs.v))
    with mpmath.workprec(200):
        scale = mpmath.mpf(inputs.softmax_scale)
        e = [mpmath.exp(scale * mpmath.fdot(q[2, 0].tolist(), k[j, 0].tolist())) for j in range(6)]
        for d in range(3):
            wanted = mpmath.fdot(e, v[:, 0, d].tolist()) / mpmath.fsum(e)
            assert abs(found[d] - wanted) < mpmath.mpf(2) ** -145


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_wide_formats_keep_their_bits(dtype):
    """Values 2^60 apart: the small one survives only on an exact grid."""
    k = torch.tensor([[2.0**40, 0.0], [0.0, 2.0**-20]], dtype=dtype).reshape(1, 2, 1, 2)
    q = torch.tensor([2.0**-40, 0.0], dtype=dtype).reshape(1, 1, 1, 2)
    v = torch.tensor([[2.0**30], [2.0**-30]], dtype=dtype).reshape(1, 2, 1, 1)
    inputs = AttentionInputs(q, k, v, scale=1.0)
    found = attend_exact(inputs).output[0][0]
    with mpmath.workprec(200):
        w = mpmath.e / (mpmath.e + 1)
        wanted = w * mpmath.mpf(2) ** 30 + (1 - w) * mpmath.mpf(2) ** -30
        assert abs(found - wanted) < mpmath.mpf(2) ** -125


def test_what_it_cannot_take_is_refused(problem):
    inputs = problem()
    with pytest.raises(ArgumentError, match="64 bits or more"):
        attend_exact(inputs, precision=53)
    inputs.k[0, 0] = torch.nan
    with pytest.raises(ArgumentError, match="not finite"):
        attend_exact(inputs)
