"""Small attention problems with everything that changes the mask, the scores or the mass."""

import pytest
import torch

from verify.reference.attention import AttentionInputs


def build(
    seed=0, batch=1, tokens_q=5, tokens_kv=37, heads=(4, 2), dim=16, value_dim=None, **options
):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).half()

    sinks = options.pop("with_sinks", False)
    return AttentionInputs(
        q=draw(batch, tokens_q, heads[0], dim),
        k=draw(batch, tokens_kv, heads[1], dim),
        v=draw(batch, tokens_kv, heads[1], value_dim or dim) + options.pop("value_mean", 0.0),
        sinks=torch.randn(heads[0], generator=generator).double() if sinks else None,
        **options,
    )


@pytest.fixture
def problem():
    return build
