"""Loading models from local files, and saying what is wrong with those that do not load."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.toy_model import save_toy
from verify.dumps.hf import packaged
from verify.dumps.hf.gguf_cache import cache_folder, converted_folder, sha256
from verify.dumps.hf.load import load_model
from verify.errors import ModelError


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("model") / "toy")


@pytest.fixture
def broken(toy_folder, tmp_path):
    """A copy of the toy, to be damaged."""
    return shutil.copytree(toy_folder, tmp_path / "toy")


def test_weights_lie_in_aligned_memory_and_stay_tied(toy_folder):
    model = load_model(str(toy_folder)).model
    assert all(p.data_ptr() % 64 == 0 for p in model.parameters())
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not model.training


def test_dtype_and_attention_are_those_asked_for(toy_folder):
    model = load_model(str(toy_folder), dtype="bf16", attn="eager").model
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.config._attn_implementation == "eager"


def test_nothing_there(tmp_path):
    with pytest.raises(ModelError, match=r"(?s)there is no such model.*smollm2"):
        load_model(str(tmp_path / "absent"))


def test_a_folder_that_is_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"(?s)not a model in Hugging Face layout.*no config.json"):
        load_model(str(tmp_path))


def test_a_file_that_is_not_gguf(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"MZ" * 100)
    with pytest.raises(ModelError, match=r"(?s)not a GGUF file.*MZ.*GGUF"):
        load_model(str(tmp_path / "model.gguf"))


def test_a_gguf_file_that_is_cut_short(tmp_path, monkeypatch):
    monkeypatch.setenv("VERIFY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + b"\x03" * 40)
    with pytest.raises(
        ModelError, match=r"(?s)transformers cannot load this GGUF file.*model.gguf"
    ):
        load_model(str(tmp_path / "model.gguf"))
    assert not any((tmp_path / "cache" / "gguf").iterdir())


def test_missing_weights_are_not_filled_with_random_numbers(broken):
    path = broken / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"(?s)lacks weights.*layers\.1\.mlp\.up_proj"):
        load_model(str(broken))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_file(broken, name):
    path = broken / name
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ModelError, match="the model does not load") as caught:
        load_model(str(broken))
    assert str(broken) in str(caught.value)


def test_a_pinned_file_that_was_changed(tmp_path, monkeypatch):
    package = tmp_path / "pinned_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "model.gguf").write_bytes(b"GGUF other")
    monkeypatch.syspath_prepend(tmp_path)
    model = packaged.PackagedModel(
        "pinned", (("pinned_model", "model.gguf"),), "0" * 64, "pip install pinned", "none"
    )
    monkeypatch.setitem(packaged.PACKAGED_MODELS, "pinned", model)
    with pytest.raises(ModelError, match=r"(?s)not the one that is pinned.*sha256 0000"):
        load_model("pinned")


def test_a_package_that_is_not_installed(monkeypatch):
    absent = packaged.PackagedModel("x", (("no_such_package_xyz", "m"),), "", "pip install xyz", "")
    monkeypatch.setitem(packaged.PACKAGED_MODELS, "x", absent)
    with pytest.raises(ModelError, match=r"(?s)is not installed.*pip install xyz"):
        load_model("x")


def test_a_converted_model_is_taken_from_the_cache(tmp_path, monkeypatch, toy_folder):
    monkeypatch.setenv("VERIFY_CACHE", str(tmp_path))
    source = tmp_path / "any.gguf"
    source.write_bytes(b"GGUF")
    digest = sha256([source])
    cached = cache_folder() / "gguf" / digest
    shutil.copytree(toy_folder, cached)
    (cached / "source.json").write_text("{}")
    assert converted_folder([source], digest) == cached
    assert load_model(str(source)).source["sha256"] == digest


def test_parts_are_hashed_as_one_file(tmp_path):
    for name, content in (("a", b"GG"), ("b", b"UF"), ("whole", b"GGUF")):
        (tmp_path / name).write_bytes(content)
    joined = sha256([tmp_path / "a", tmp_path / "b"])
    assert joined == sha256([tmp_path / "whole"])
