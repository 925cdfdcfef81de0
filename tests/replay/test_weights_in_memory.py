"""A run with mapped weights is repeated with weights at such addresses, and the report names them."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.toy_model import save_toy
from verify.bisect.confounders import find_confounders
from verify.dumps.capture.manifest import weights_alignment
from verify.dumps.format import open_dump
from verify.dumps.hf.load import own_aligned_memory
from verify.dumps.hf.record import Request, record_generation
from verify.replay.load import load_implementation


def test_weights_are_placed_as_they_lay(tmp_path):
    save_toy(tmp_path / "toy")
    request = Request(model=str(tmp_path / "toy"), prompts=("Hi",), tokens=1, taps=("logits",))
    record_generation(request, tmp_path / "a")
    record_generation(request, tmp_path / "b", plant=lambda model: own_aligned_memory(model, 8))
    a, b = open_dump(tmp_path / "a"), open_dump(tmp_path / "b")
    found = {c.name: c for c in find_confounders(a, b)}["settings.weights_alignment"]
    assert (found.a, found.b, found.weight) == ("64", "8", "likely")
    for dump, alignment in ((a, 64), (b, 8)):
        model = load_implementation(dump, str(tmp_path / "toy")).model
        assert weights_alignment(list(model.parameters())) == alignment
