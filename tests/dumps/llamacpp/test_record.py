"""llama.cpp itself on the GGUF file of SmolLM2, against the same weights in transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from verify.certify.weights import gguf_path
    from verify.dumps.hf.record import Request, record_generation
    from verify.dumps.llamacpp.record import record_llamacpp

    root = tmp_path_factory.mktemp("llamacpp")
    record_generation(
        Request(model="smollm2", prompts=("Why is the sky blue?",), tokens=2), root / "hf"
    )
    gguf = gguf_path("smollm2")
    assert gguf is not None
    assert record_llamacpp(gguf, root / "hf", root / "cpp") > 1000
    return root / "hf", root / "cpp"


def test_products_are_explained_by_their_weight_formats(pair: tuple[Path, Path]) -> None:
    from verify.bisect.result import Verdict
    from verify.bisect.run import bisect
    from verify.certify.own import own_roundings
    from verify.taps.open import open_mapped

    a, b = open_mapped(*pair, "llamacpp-llama")
    result = bisect(a, b, checkers=[own_roundings(a, b, "smollm2")])
    found = {v: {t for f in result.findings if f.verdict is v for t in f.taps} for v in Verdict}
    assert not found[Verdict.DEFECT]
    layers = range(29)
    products = {
        f"model.layers.{n}.mlp.{p}_proj.out" for n in layers for p in ("gate", "up", "down")
    }
    assert products <= found[Verdict.PRECISION]
    # Attention is of another precision by design, and nothing is left unexplained.
    assert {f"model.layers.{n}.self_attn.attn.out" for n in layers} <= found[Verdict.PRECISION]
    assert {f"model.layers.{n}.input_layernorm.out" for n in layers} <= found[Verdict.ROUNDING]
    assert result.verdict is Verdict.PRECISION
    assert not found[Verdict.UNRESOLVED] and not found[Verdict.INCOMPLETE]
