"""Ready certificates: they explain what rounding explains, and name a planted fault."""

import pytest
import torch

from verify.endpoints.certificates import attention, decoding, operation
from verify.errors import ArgumentError
from verify.reference.certificates.norm import RmsNorm
from verify.reference.replay.arithmetic import wave_decode

CODES = torch.arange(254, dtype=torch.uint8)
CODES = CODES + (CODES >= 0x7F).to(torch.uint8)  # every code but the two NaN


def _decoded(scale, *, in_fp16=False):
    values = CODES.view(torch.float8_e4m3fn)
    if in_fp16:
        return values.half() * torch.tensor(scale).half()
    return (values.float() * torch.tensor(scale)).half()


def test_every_code_is_the_one_of_the_table():
    judge = decoding(lambda inputs: CODES)
    for scale in (1.0, 0.5, 0.3, 1000.0):
        found = judge({"": _decoded(scale)}, {"scale": scale})
        assert found.certificate.outcome == "EXPLAINED" and found.rows is None


def test_another_convention_than_declared_is_a_defect_by_count_and_place():
    fp16 = _decoded(0.3, in_fp16=True)
    found = decoding(lambda inputs: CODES)({"": fp16}, {"scale": 0.3}).certificate
    wrong = int((fp16 != _decoded(0.3)).sum())
    assert found.outcome == "DEFECT" and wrong > 20
    assert found.checks[0].statistic == wrong and "first at" in found.checks[0].detail
    declared = decoding(lambda inputs: CODES, convention="fp16_multiply")
    assert declared({"": fp16}, {"scale": 0.3}).certificate.outcome == "EXPLAINED"


def test_a_nan_where_a_number_belongs_is_a_defect():
    out = _decoded(1.0)
    out[5] = torch.nan
    assert decoding(lambda i: CODES)({"": out}, {"scale": 1.0}).certificate.outcome == "DEFECT"


def test_codes_of_another_shape_are_refused():
    with pytest.raises(ArgumentError, match="does not fit the codes"):
        decoding(lambda inputs: CODES[:5])({"": _decoded(1.0)}, {"scale": 1.0})


def _attention():
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, n, 2, 16, generator=draw).half() for n in (4, 32, 32))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / 4.0
    mask = torch.ones(4, 32, dtype=torch.bool).tril(28)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return {"q": q, "k": k, "v": v}, torch.einsum("bhqk,bkhd->bqhd", weights, v.double()).half()


def test_attention_over_all_rows_or_a_sample():
    inputs, out = _attention()
    every = attention(wave_decode(64))({"": out}, inputs)
    assert (every.certificate.outcome, every.rows, every.total) == ("EXPLAINED", 8, 8)
    some = attention(wave_decode(64), rows=3)({"": out}, inputs)
    assert (some.rows, some.total) == (3, 8)


def test_attention_that_drops_a_key_is_no_rounding():
    inputs, out = _attention()
    short = {name: t[:, 1:] if name != "q" else t for name, t in inputs.items()}
    found = attention(wave_decode(64))({"": out}, short).certificate
    assert found.outcome == "DEFECT"


def test_a_layer_is_judged_by_its_operation():
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)).half()
    weight = torch.ones(64).half()
    out = torch.nn.functional.rms_norm(x.double(), (64,), weight.double(), 1e-6).half()
    inputs = {"hidden": x, "weight": weight}
    judge = operation(RmsNorm(eps=1e-6), x="hidden")
    assert judge({"": out}, inputs).certificate.outcome == "EXPLAINED"
    assert judge({"": out * 1.25}, inputs).certificate.outcome == "DEFECT"
