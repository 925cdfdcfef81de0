"""vLLM-Neuron, TensorRT-LLM, labelled payloads, llama.cpp logits, TorchLens, Hugging Face trees."""

import json

import numpy as np
import pytest
import torch

from tests.support.importing import import_to, run_cli
from tests.support.planted import Planted
from verify.dumps.hf.prompts import prompt_hash

X = torch.tensor([float("nan"), -0.0, 1.0], dtype=torch.bfloat16)
WORDS = [0x7FC0, 0x8000, 0x3F80]


def put(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, file)


def neuron(root, value=X, meta=True):
    put(root / "dp0" / "prefill_s4_0" / "model.layers.0" / "rank0.pt", value)
    if meta:
        about = {"req_ids": ["r1"], "positions": [0, 1, 2], "dp_rank": 0}
        (root / "dp0" / "prefill_s4_0_meta.json").write_text(json.dumps(about))
        put(root / "dp0" / "decode_b1_1" / "model.layers.0" / "rank0.pt", torch.ones(1, 1, 2))
        about = {"req_ids": ["r1"], "positions": [3], "dp_rank": 0}
        (root / "dp0" / "decode_b1_1" / "decode_b1_1_meta.json").write_text(json.dumps(about))


def tensorrt(root, value=X):
    put(root / "rank0" / "0.model-0.layers.0-mlp-input.x.pt", value)
    put(root / "rank0" / "0.model-0.layers.0-mlp-output.0.pt", value)


def payload(root, value=X):
    for number, label in enumerate(("q", "k")):
        table = {"tensor": value, "step": 4, "layer_idx": 2, "label": label, "pid": 17}
        put(root / f"{number}_{label}.pt", table)


@pytest.mark.parametrize("write", [neuron, tensorrt, payload])
def test_bits_refusals_and_planted_objects(tmp_path, write):
    write(tmp_path / "a")
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert run.read_words(run.records()[0]).reshape(-1).tolist() == WORDS
    assert all([s.kind for s in r.inputs] == ["unknown"] for r in run.records())
    touched = tmp_path / "touched"
    write(tmp_path / "b", Planted(touched))
    code, _, err = run_cli(
        "import", tmp_path / "b", "--format", run.manifest.capture["source"]["format"]
    )
    assert code == 2 and "system" in err and not touched.exists()
    file = next(iter(sorted((tmp_path / "a").rglob("*.pt"))))
    file.write_bytes(file.read_bytes()[:-50])
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "Traceback" not in err


def test_neuron_rows_and_padding(tmp_path):
    neuron(tmp_path / "a", torch.arange(8.0).reshape(1, 4, 2))
    run = import_to(tmp_path / "a", tmp_path / "run")
    first, second = run.records()
    assert (first.tap, first.axes) == ("model.layers.0.out", "x0 t x2")
    assert list(run.rows(first).sequence) == ["r1", "r1", "r1", None]
    assert run.rows(second).position.tolist() == [3]


def test_tensorrt_and_payload_taps(tmp_path):
    tensorrt(tmp_path / "a")
    run = import_to(tmp_path / "a", tmp_path / "run-a")
    assert [r.tap for r in run.records()] == [
        "model.0.layers.0.mlp.in.x", "model.0.layers.0.mlp.out.0",
    ]  # fmt: skip
    payload(tmp_path / "b")
    run = import_to(tmp_path / "b", tmp_path / "run-b")
    assert [(r.tap, r.step) for r in run.records()] == [("layers.2.q", 4), ("layers.2.k", 4)]


def test_llama_logits(tmp_path):
    logits = np.array([0x7FC00001, 0x80000000, 0x3F800000], np.uint32)
    (tmp_path / "llamacpp-toy.bin").write_bytes(logits.tobytes())
    (tmp_path / "llamacpp-toy-tokens.bin").write_bytes(np.int32([5, 3, 9]).tobytes())
    for path in (tmp_path, tmp_path / "llamacpp-toy.bin"):
        run = import_to(path, tmp_path.with_name(f"{tmp_path.name}-{path.suffix}"))
        assert [r.tap for r in run.records()] == ["tokens.in", "logits"]
        assert run.read_words(run.records()[1])[0].tolist() == logits.tolist()
        assert run.rows(run.records()[1]).position.tolist() == [2]
        assert run.manifest.workload.sequences[0].id == f"{prompt_hash([5, 3, 9])}#0"
    (tmp_path / "llamacpp-toy.bin").write_bytes(b"12345")
    code, _, err = run_cli("inspect", tmp_path)
    assert code == 2 and "5 bytes" in err


def bundle(root, value=X):
    """A TorchLens bundle, as far as its manifest goes."""
    import hashlib

    from safetensors.torch import save_file

    (root / "blobs").mkdir(parents=True)
    save_file({"data": value}, root / "blobs" / "1.safetensors")
    entry = {
        "blob_id": "1", "kind": "out", "label": "relu_1_2:1",
        "relative_path": "blobs/1.safetensors", "shape": list(value.shape), "dtype": "bfloat16",
        "sha256": hashlib.sha256((root / "blobs" / "1.safetensors").read_bytes()).hexdigest(),
    }  # fmt: skip
    manifest = {"torchlens_version": "2", "torch_version": "2", "tensors": [entry]}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def test_torchlens_bundle(tmp_path):
    manifest = bundle(tmp_path / "a.tlspec")
    touched = tmp_path / "touched"
    torch.save(Planted(touched), tmp_path / "a.tlspec" / "metadata.pkl")
    run = import_to(tmp_path / "a.tlspec", tmp_path / "run")
    assert [r.tap for r in run.records()] == ["relu_1_2:1.out"]
    assert run.read_words(run.records()[0])[0].tolist() == WORDS
    assert not touched.exists()
    blob = tmp_path / "a.tlspec" / "blobs" / "1.safetensors"
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x00")
    code, _, err = run_cli("inspect", tmp_path / "a.tlspec")
    assert code == 2 and "SHA-256" in err
    manifest["tensors"][0]["relative_path"] = "../secret"
    (tmp_path / "a.tlspec" / "manifest.json").write_text(json.dumps(manifest))
    code, _, err = run_cli("inspect", tmp_path / "a.tlspec")
    assert code == 2 and "outside of the dump" in err


def test_torchlens_itself(tmp_path):
    torchlens = pytest.importorskip("torchlens")
    pytest.importorskip("graphviz")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    x = torch.ones(2, 4)
    torchlens.trace(model, x).save(str(tmp_path / "a.tlspec"))
    run = import_to(tmp_path / "a.tlspec", tmp_path / "run")
    found = {r.tap: run.read_words(r)[0].view("f4") for r in run.records()}
    expected = model(x).detach().numpy().reshape(-1)
    assert any("relu" in tap and np.array_equal(v, expected) for tap, v in found.items())


@pytest.mark.parametrize("use_repr", [False, True])
def test_hugging_face_tree(tmp_path, use_repr):
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.model_debugging_utils import model_addition_debugger_context

    config = LlamaConfig(
        vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    seen = {}
    model.lm_head.register_forward_hook(lambda module, x, out: seen.update(out=out.clone()))
    folder = tmp_path / "a"
    with (
        torch.no_grad(),
        model_addition_debugger_context(
            model, debug_path=str(folder), do_prune_layers=False, use_repr=use_repr
        ),
    ):
        model(input_ids=torch.tensor([[1, 2, 3]]))
    torch.set_printoptions(profile="default")
    run = import_to(folder, tmp_path / "run")
    taps = [r.tap for r in run.records()]
    record = next(r for r in run.records() if r.tap.startswith("lm_head.out"))
    assert taps.index(record.tap) > taps.index(next(t for t in taps if "self_attn.q_proj" in t))
    if use_repr:
        assert record.attributes["stands_for"] == "statistics"
        mean = run.read_words(record)[0].view("f8")[0]
        # The tree prints four decimals.
        assert mean == pytest.approx(seen["out"].mean().item(), rel=1e-3)
    else:
        assert (
            run.read_words(record)[0].tolist()
            == seen["out"].numpy().view("u4").reshape(-1).tolist()
        )
        tree = next(folder.glob("*FULL_TENSORS.json"))
        tree.write_text(tree.read_text().replace("./", "../../", 1))
        code, _, err = run_cli("inspect", folder)
        assert code == 2 and "outside of the dump" in err


def tree(root, child, stored="./x.safetensors"):
    leaf = {"shape": "torch.Size([3])", "dtype": "torch.bfloat16", "value": stored}
    node = {"module_path": "M", "inputs": None, "outputs": leaf, "children": child}
    root.mkdir()
    (root / "M_debug_tree_FULL_TENSORS.json").write_text(json.dumps(node))


def test_a_planted_object_beside_a_tree_is_not_run(tmp_path):
    touched = tmp_path / "touched"
    tree(tmp_path / "a", [])
    torch.save(Planted(touched), tmp_path / "a" / "x.safetensors")
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "Traceback" not in err and not touched.exists()


@pytest.mark.parametrize("child", [3, {"x": 1}, "text", [3], [[]]])
def test_values_of_another_kind_are_faults_of_the_file(tmp_path, child):
    tree(tmp_path / "a", child, stored=None)
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "a foreign dump cannot be read" in err
