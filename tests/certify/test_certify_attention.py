"""``verify certify`` on attention cores: torch's own, right and with planted faults."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.toy_model import toy_llama
from verify.certify.run import Options, certify_records
from verify.dumps.capture import capture
from verify.errors import ArgumentError
from verify.reference.certificates.result import Outcome

SOUND = functional.scaled_dot_product_attention
HEADS, DIM = 4, 16


class Model(nn.Module):
    """Two query heads share a key head; its one operation is the core."""

    def forward(self, x):
        parts = x.split([HEADS * DIM, 2 * DIM, 2 * DIM], -1)
        q, k, v = (part.unflatten(-1, (-1, DIM)).transpose(1, 2) for part in parts)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def recorded(folder, dtype=torch.float32, taps=None):
    torch.manual_seed(3)
    model = Model()
    with capture(model, folder / "run", taps=taps), torch.no_grad():
        model(torch.randn(2, 24, HEADS * DIM + 4 * DIM).to(dtype))
    return f"{folder / 'run'}::attn.out"


def certified(name):
    (found,) = certify_records([name], Options()).records
    return found.certificate


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_correct_core_is_explained(tmp_path, dtype):
    found = certified(recorded(tmp_path, dtype))
    assert found.outcome is Outcome.EXPLAINED
    assert found.numbers["rows"] == 2 * HEADS * 24
    assert 0.0 < found.numbers["budget_used"] < 1.0


def scaled(q, k, v, *rest, **options):
    return SOUND(q, k, v, *rest, **options) * (1 + 2**-6)


def rounded_once(q, k, v, *rest, **options):
    return SOUND(q.double(), k.double(), v.double(), *rest, **options).to(q.dtype)


def test_the_floor_is_the_error_of_rounding_once(tmp_path, monkeypatch):
    dtype = torch.float16
    sound = certified(recorded(tmp_path / "sound", dtype)).numbers["error_over_floor"]
    for core, low, high in ((rounded_once, 1 - 1e-6, 1 + 1e-6), (scaled, 10 * sound, np.inf)):
        monkeypatch.setattr(functional, "scaled_dot_product_attention", core)
        found = certified(recorded(tmp_path / core.__name__, dtype))
        assert low <= found.numbers["error_over_floor"] <= high
    assert sound >= 1.0


def other_key_head(q, k, v, *rest, **options):
    return SOUND(q, k.flip(1), v, *rest, **options)


def no_newest_key(q, k, v, *rest, **options):
    hidden = torch.ones(24, 24).triu(0).bool()
    hidden[0, 0] = False
    return SOUND(q, k, v, attn_mask=~hidden, enable_gqa=True)


def one_nan(q, k, v, *rest, **options):
    out = SOUND(q, k, v, *rest, **options).clone()
    out[1, 3, 20, 5] = float("nan")
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fault", [scaled, other_key_head, no_newest_key, one_nan])
def test_a_faulty_core_is_a_defect(tmp_path, monkeypatch, fault, dtype):
    monkeypatch.setattr(functional, "scaled_dot_product_attention", fault)
    found = certified(recorded(tmp_path, dtype))
    assert found.outcome is Outcome.DEFECT
    if fault is one_nan:
        assert "head 3, row 20 of the step, channel 5" in found.reasons[0]


def test_what_the_core_read_has_to_be_in_the_dump(tmp_path):
    name = recorded(tmp_path, taps=["attn.out", "attn.in.q"])
    with pytest.raises(ArgumentError, match=r"no attn\.in\.k, attn\.in\.v, attn\.in\.mask"):
        certified(name)


def test_rows_on_operands_that_are_not_finite_are_not_explained(tmp_path):
    from verify.certify.attention import certify_core
    from verify.dumps.format import open_dump
    from verify.reference.certificates.result import Outcome

    for spoiled, outcome in ((slice(-1, None), Outcome.EXPLAINED), (slice(None), Outcome.SUSPECT)):
        out = tmp_path / str(spoiled.start)
        model = toy_llama()
        module = model.model.layers[0].self_attn.q_proj
        forward = module.forward

        def nan(x, forward=forward, spoiled=spoiled):
            y = forward(x).clone()
            y[:, spoiled] = float("nan")
            return y

        module.forward = nan
        with capture(model, out), torch.no_grad():
            model(torch.arange(6)[None])
        dump = open_dump(out)
        tap = "model.layers.0.self_attn.attn.out"
        _, certificate = certify_core(dump, next(r for r in dump.records() if r.tap == tap))
        assert certificate.outcome is outcome
        assert certificate.numbers["rows_not_finite"] > 0
        assert any("not finite" in reason for reason in certificate.reasons)


def test_a_sample_of_rows_holds_the_last_one():
    from verify.certify.attention import _chosen

    assert _chosen(np.arange(100), 3).tolist() == [0, 49, 99]
    assert len(_chosen(np.arange(100), None)) == 100
