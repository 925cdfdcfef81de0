"""Damaged files of every format: read, or refused with a message, and nothing else."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.dumps.importers.test_debug_mode import layers, log
from tests.dumps.importers.test_flashinfer import two_calls
from tests.dumps.importers.test_msprobe import API, MODULE, leaf
from tests.dumps.importers.test_msprobe import write as write_msprobe
from tests.dumps.importers.test_others import bundle, neuron, payload, tensorrt
from tests.dumps.importers.test_polygraphy import VALUES, array, results, save
from tests.dumps.importers.test_sglang import TOGETHER, serve
from tests.support.importing import import_to
from verify.dumps.importers.registry import FORMATS, open_source
from verify.dumps.importers.writing import write_run
from verify.errors import VerifyError


def _plain(root):
    root.mkdir()
    np.save(root / "x.npy", np.arange(6.0))
    np.savez(root / "y.npz", a=np.arange(3), b=np.zeros(2, bool))
    torch.save([torch.ones(3)], root / "z.pt")


def _llama(root):
    root.mkdir()
    (root / "m.bin").write_bytes(np.float32([1, 2]).tobytes())
    (root / "m-tokens.bin").write_bytes(np.int32([5]).tobytes())


def _passes(root):
    (root / "TP0_PP0_Rank0_pid1").mkdir(parents=True)
    torch.save({"m": torch.ones(2)}, root / "TP0_PP0_Rank0_pid1" / "Pass00000.pt")


def _msprobe(root):
    x = leaf(torch.ones(2))
    write_msprobe(root, {MODULE: (x, leaf(torch.ones(2), crc="0a"))})
    write_msprobe(root, {API: (x, x)}, step=1)


def _tree(root):
    root.mkdir()
    np.save(root / "x.npy", np.ones(1))
    text = '{"module_path": "M", "inputs": null, "outputs": {"shape": "torch.Size([1])", '
    text += '"dtype": "torch.float32", "mean": "tensor(1.5000e+00)"}, "children": []}'
    (root / "M_debug_tree_FULL_TENSORS.json").write_text(text)


def _in_folder(write, name):
    def wrapped(root):
        root.mkdir()
        write(root / name)

    return wrapped


WRITERS = {
    "debug-mode": _in_folder(lambda path: log(path, layers()), "a.json"),
    "polygraphy": _in_folder(lambda path: save(path, results({"x": array(VALUES)})), "a.json"),
    "torchlens": bundle,
    "msprobe": _msprobe,
    "flashinfer": two_calls,
    "hf-tree": _tree,
    "sglang": lambda root: serve(root, TOGETHER),
    "sglang-pass": _passes,
    "vllm-neuron": neuron,
    "tensorrt-llm": tensorrt,
    "llama-logits": _llama,
    "payload": payload,
    "plain": _plain,
}
SEED = int(os.environ.get("VERIFY_DAMAGE_SEED", "7"))
TRIALS = int(os.environ.get("VERIFY_DAMAGE_TRIALS", "12"))
SINGLE = ("debug-mode", "polygraphy")


def test_every_format_has_a_writer_here():
    assert WRITERS.keys() == {format.name for format in FORMATS}


@pytest.mark.parametrize("name", WRITERS)
def test_damage_is_refused_or_read(tmp_path, name):
    WRITERS[name](tmp_path / "whole")
    source = tmp_path / "whole" / ("a.json" if name in SINGLE else "")
    assert import_to(source, tmp_path / "run").manifest.capture["source"]["format"] == name
    rng = np.random.default_rng(SEED)
    refused = 0
    for trial in range(TRIALS):
        damaged = tmp_path / f"damaged-{trial}"
        shutil.copytree(tmp_path / "whole", damaged)
        files = sorted(path for path in damaged.rglob("*") if path.is_file())
        file = files[rng.integers(len(files))]
        data = bytearray(file.read_bytes())
        if trial % 2:
            data = data[: rng.integers(len(data))]
        else:
            for at in rng.integers(len(data), size=4):
                data[at] ^= 1 << rng.integers(8)
        file.write_bytes(data)
        path = damaged / "a.json" if name in SINGLE else damaged
        try:
            write_run(open_source(path, name), tmp_path / f"run-{trial}")
        except VerifyError as error:
            refused += 1
            assert error.exit_code == 2
            assert not (tmp_path / f"run-{trial}").exists()
        shutil.rmtree(damaged)
        shutil.rmtree(tmp_path / f"run-{trial}", ignore_errors=True)
    assert refused


def test_a_tree_of_arrays_is_imported_without_torch(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    code = (
        "import sys; from verify.dumps.importers.opening import open_run; "
        f"open_run({str(tmp_path)!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
