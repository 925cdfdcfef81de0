"""Each side held against FP64 on its own inputs: nothing innocent is accused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.dumps import capture
from verify.dumps.format import open_dump
from verify.dumps.hf.load import LoadedModel
from verify.dumps.hf.record import Request, record_generation
from verify.errors import VerifyError
from verify.selftest.toy import toy_llama, toy_tokenizer


def test_logits_of_the_last_position_are_not_held_against_other_rows(tmp_path: Path) -> None:
    """The logits of a prompt are those of its last position; what they read has a row a position."""
    for attn in ("sdpa", "eager"):
        model = toy_llama(attn=attn)
        request = Request(model="toy", prompts=("abcdefghijkl",), tokens=3, attn=attn, raw=True)
        loaded = LoadedModel("toy", model, toy_tokenizer(), {})
        record_generation(request, tmp_path / attn, loaded=loaded)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(weights, str(tmp_path / "w.safetensors"))
    a, b = open_dump(tmp_path / "sdpa"), open_dump(tmp_path / "eager")
    logits = [record for record in a.records() if record.tap == "logits"]
    assert logits[0].n_rows == 1  # the case in question
    result = bisect(a, b, checkers=[own_roundings(a, b, str(tmp_path / "w.safetensors"))])
    assert not [f.title for f in result.findings if f.verdict is Verdict.DEFECT]
    assert any(f.verdict is Verdict.ROUNDING for f in result.findings)


def test_weights_that_cannot_be_read_are_an_error_and_not_silence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    loaded = LoadedModel("toy", toy_llama(), toy_tokenizer(), {})
    record_generation(
        Request(model="toy", prompts=("abc",), tokens=1, raw=True), run, loaded=loaded
    )
    dump = open_dump(run)
    (tmp_path / "broken.safetensors").write_bytes(b"no weights")
    for name in ("nowhere.safetensors", "broken.safetensors"):
        with pytest.raises(VerifyError):
            own_roundings(dump, dump, str(tmp_path / name))


def test_another_scale_is_not_excused_by_the_side_that_has_it(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 1.02)):
        model = toy_llama(attn="eager")
        model.model.layers[1].self_attn.scaling *= factor
        loaded = LoadedModel("toy", model, toy_tokenizer(), {})
        record_generation(
            Request(model="toy", prompts=("abcdef",), tokens=1, attn="eager", raw=True),
            tmp_path / name,
            loaded=loaded,
        )
    a, b = open_dump(tmp_path / "a"), open_dump(tmp_path / "b")
    result = bisect(a, b, checkers=[own_roundings(a, b, None)])
    broken = [f for f in result.findings if f.verdict is Verdict.DEFECT]
    assert [f.taps for f in broken] == [["model.layers.1.self_attn.attn.out"]]
    assert any("scale is 0.25 in A and 0.255 in B" in reason for reason in broken[0].reasons)


def test_another_gelu_is_named_as_a_convention(tmp_path: Path) -> None:
    for approximate in ("none", "tanh"):
        model = torch.nn.Sequential(torch.nn.Hardtanh(-3, 3), torch.nn.GELU(approximate))
        with torch.no_grad(), capture(model, tmp_path / approximate):
            model(torch.linspace(-4, 4, 64).reshape(1, 4, 16))
    a, b = open_dump(tmp_path / "none"), open_dump(tmp_path / "tanh")
    result = bisect(a, b, checkers=[own_roundings(a, b, None)])
    assert result.verdict is Verdict.PRECISION
    assert "function=gelu-tanh" in result.findings[0].title


@pytest.mark.parametrize("edges", ["trace", "identity"])
def test_no_operation_is_a_copy_only_where_a_trace_says_so(edges: str, tmp_path: Path) -> None:
    for name, step in (("a", 0.0), ("b", 1e-6)):
        model = torch.nn.Sequential(torch.nn.Hardtanh(-3, 3), torch.nn.SiLU())
        with torch.no_grad(), capture(model, tmp_path / name, edges=edges):
            model(torch.linspace(-4, 4, 64).reshape(1, 4, 16) + step)
    a, b = open_dump(tmp_path / "a"), open_dump(tmp_path / "b")
    result = bisect(a, b, checkers=[own_roundings(a, b, None)])
    judged = {f.verdict for f in result.findings if "1.out" in f.taps}
    assert judged == {Verdict.ROUNDING if edges == "trace" else Verdict.UNRESOLVED}


class Odd(torch.nn.Module):
    """A product with a weight [in, out], and a norm over each of two heads of its result."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.pytorch_utils import Conv1D

        self.before = torch.nn.Hardtanh(-3, 3)
        self.conv, self.norm = Conv1D(16, 16), torch.nn.RMSNorm(8, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.conv(self.before(x)).unflatten(-1, (2, 8))
        normed: torch.Tensor = self.norm(heads)
        return normed


def test_weights_stored_as_in_out_and_norms_of_heads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Odd(), torch.randn(1, 4, 16)
    save_file(model.state_dict(), str(tmp_path / "w.safetensors"))
    for name, step in (("a", 0.0), ("b", 1e-6)):  # what enters is moved, so that all taps differ
        with torch.no_grad(), capture(model, tmp_path / name):
            model(x + step)
    a, b = open_dump(tmp_path / "a"), open_dump(tmp_path / "b")
    result = bisect(a, b, checkers=[own_roundings(a, b, str(tmp_path / "w.safetensors"))])
    assert not [f.title for f in result.findings if f.verdict is Verdict.DEFECT]
    judged = {tap for f in result.findings if f.verdict is Verdict.ROUNDING for tap in f.taps}
    assert judged >= {"conv.out", "norm.out"}
