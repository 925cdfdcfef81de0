"""Plain trees of tensor files, bit for bit."""

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.support.importing import import_to, run_cli
from tests.support.planted import Planted
from verify.compare.run import compare
from verify.errors import ArgumentError, DumpError
from verify.formats import word_dtype

NUMPY = {
    "float32": np.array([0x7FC00001, 0xFF800123, 0x80000000, 0x3F800000], np.uint32),
    "float16": np.array([0x7E01, 0x8000, 0xFC00, 0x3C00], np.uint16),
    "float64": np.array([0x7FF8000000000001, 1 << 63, 1, 0x3FF0000000000000], np.uint64),
    "int8": np.array([0x80, 0xFF, 0, 1], np.uint8),
    "bool": np.array([0, 1, 1, 0], np.uint8),
}
RAW = {
    "bfloat16": np.array([0x7FC1, 0x8000, 0xFF80, 0x0001], np.uint16),
    "float8_e4m3fn": np.array([0x7F, 0x80, 0xFF, 0x01], np.uint8),
    "float8_e5m2": np.array([0x7D, 0x80, 0xFC, 0x01], np.uint8),
}
ALL = {**NUMPY, **RAW}


def torch_of(words, name):
    whole = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[words.itemsize]
    return torch.from_numpy(words.view(whole)).view(getattr(torch, name)).reshape(2, 2)


def write(path, kind, words, name):
    """The words of a format as a file of a kind."""
    if kind == "npy":
        stored = words if name in RAW else words.view(name)
        np.save(path, stored.view(f"V{words.itemsize}") if name in RAW else stored)
    elif kind == "npz":
        np.savez(path, x=words.view(f"V{words.itemsize}") if name in RAW else words.view(name))
    elif kind == "pt":
        torch.save({"x": torch_of(words, name)}, path)
    else:
        save_file({"x": torch_of(words, name)}, path)


@pytest.mark.parametrize("kind", ["npy", "npz", "pt", "safetensors"])
def test_every_bit_survives(tmp_path, kind):
    for name, words in ALL.items():
        folder = tmp_path / "a"
        folder.mkdir(exist_ok=True)
        write(folder / f"{name}.{kind}", kind, words, name)
    dtypes = tuple((f"{name}*", name) for name in RAW)
    dump = import_to(tmp_path / "a", tmp_path / "run", dtypes=dtypes)
    found = {record.tap.removesuffix(".x"): record for record in dump.records()}
    assert found.keys() == ALL.keys()
    for name, record in found.items():
        assert record.dtype == name
        assert (
            dump.read_words(record).reshape(-1).view(word_dtype(name)).tolist()
            == ALL[name].tolist()
        )
        assert [source.kind for source in record.inputs] == ["unknown"]


def test_layout_and_byte_order(tmp_path):
    values = np.arange(6, dtype=">f4").reshape(2, 3)
    np.save(tmp_path / "big.npy", values)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(values.astype("<f4")))
    torch.save(torch.arange(6.0).reshape(2, 3).T, tmp_path / "turned.pt")
    dump = import_to(tmp_path, tmp_path.with_name(f"{tmp_path.name}-run"))
    found = {record.tap: record for record in dump.records()}
    plain = values.astype("<f4").view(np.uint32)
    for tap in ("big", "fortran"):
        assert dump.read_words(found[tap])[0].tolist() == plain.reshape(-1).tolist()
    assert found["fortran"].strides == [1, 2]
    assert found["turned"].strides == [1, 3]
    assert dump.read_words(found["turned"])[0].tolist() == plain.T.reshape(-1).tolist()


def test_steps_ranks_and_order_out_of_paths(tmp_path):
    for step in (2, 10):
        for rank in (0, 1):
            folder = tmp_path / f"step{step}" / f"rank_{rank}"
            folder.mkdir(parents=True)
            for layer in (2, 10):
                np.save(folder / f"layers.{layer}.npy", np.float32([step, rank, layer]))
    dump = import_to(tmp_path, tmp_path.with_name(f"{tmp_path.name}-run"))
    first = dump.records(0)
    assert [(r.step, r.tap) for r in first] == [
        (2, "layers.2"), (2, "layers.10"), (10, "layers.2"), (10, "layers.10"),
    ]  # fmt: skip
    assert dump.ranks == [0, 1]
    assert [int(dump.rows(r).visit[0]) for r in first] == [0, 0, 1, 1]


def test_pattern(tmp_path):
    np.save(tmp_path / "0002_mlp_s1.npy", np.float32([1]))
    np.save(tmp_path / "0001_norm_s1.npy", np.float32([1]))
    np.save(tmp_path / "other.npy", np.float32([1]))
    dump = import_to(
        tmp_path, tmp_path.with_name(f"{tmp_path.name}-run"), pattern="{order}_{tap}_s{step}.npy"
    )
    assert [(r.tap, r.step) for r in dump.records()] == [("norm", 1), ("mlp", 1)]
    assert any("other.npy" in note for note in dump.problems)
    with pytest.raises(ArgumentError, match="naming pattern"):
        import_to(tmp_path, tmp_path.with_name(f"{tmp_path.name}-other"), pattern="{step}.npy")


def test_named_axes_give_rows_with_positions(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (tmp_path / "step0").mkdir()
    (tmp_path / "step1").mkdir()
    np.save(tmp_path / "step0" / "x.npy", x)
    np.save(tmp_path / "step1" / "x.npy", x[:, :1])
    dump = import_to(tmp_path, tmp_path.with_name(f"{tmp_path.name}-run"), axes=(("*", "b t c"),))
    first, second = (dump.rows(record) for record in dump.records())
    assert first.position.tolist() == [0, 1, 2, 0, 1, 2]
    assert list(first.sequence) == ["sequence#0"] * 3 + ["sequence#1"] * 3
    assert second.position.tolist() == [3, 3]


def test_two_trees_compare_and_bisect(tmp_path):
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        for layer in range(3):
            x = np.ones(8, np.float32) + (run == "b" and layer == 1) * np.float32(2.0**-20)
            np.save(tmp_path / run / f"layers.{layer}.out.npy", x)
    code, out, err = run_cli("compare", tmp_path / "a", tmp_path / "b")
    assert code == 1 and "1 of 3 taps" in out
    assert err.count("imported into a temporary run") == 2
    code, out, _ = run_cli("bisect", tmp_path / "a", tmp_path / "b")
    assert code == 1 and "first observed at layers.1.out" in " ".join(out.split())
    code, out, _ = run_cli("import", tmp_path / "a", "--out", tmp_path / "run")
    assert code == 0 and "not known: the order of execution" in out
    code, out, _ = run_cli("compare", tmp_path / "run", tmp_path / "a")
    assert code == 0


@pytest.mark.parametrize("kind", ["npy", "npz", "pt", "safetensors"])
def test_truncated_files_are_refused(tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    write(path, kind, ALL["float32"], "float32")
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 40, 9):
        path.write_bytes(whole[:size])
        code, _, err = run_cli("import", path, "--out", tmp_path / "run", "--format", "plain")
        assert code == 2 and str(path) in err and "Traceback" not in err
        assert not (tmp_path / "run").exists()


def test_a_planted_object_is_named_and_not_run(tmp_path):
    touched = tmp_path / "touched"
    for name, write_planted in {
        "zip.pt": lambda path: torch.save({"x": Planted(touched)}, path),
        "old.pt": lambda path: torch.save(
            Planted(touched), path, _use_new_zipfile_serialization=False
        ),
        "raw.pt": lambda path: path.write_bytes(pickle.dumps(Planted(touched))),
    }.items():
        write_planted(path := tmp_path / name)
        code, _, err = run_cli("inspect", path)
        assert code == 2 and "system" in err, name
    path = tmp_path / "x.npy"
    np.save(path, np.array([Planted(touched)], object), allow_pickle=True)
    code, _, err = run_cli("inspect", path)
    assert code == 2 and "Python objects" in err
    path = tmp_path / "x.npz"
    np.savez(path, x=np.array([Planted(touched)], object))
    code, _, err = run_cli("inspect", path)
    assert code == 2 and "Python objects" in err
    assert not touched.exists()
    pickle.loads(pickle.dumps(Planted(touched)))  # the plant does what it is said to do
    assert touched.exists()


def test_raw_bytes_of_one_byte_need_a_name(tmp_path):
    np.save(tmp_path / "x.npy", ALL["float8_e5m2"].view("V1"))
    with pytest.raises(DumpError, match="--dtype"):
        import_to(tmp_path, tmp_path.with_name(f"{tmp_path.name}-run"))


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("hello")
    for command in (["import", path], ["inspect", path], ["compare", path, path]):
        code, _, err = run_cli(*command)
        assert code == 2 and "Traceback" not in err
    (tmp_path / "empty").mkdir()
    code, _, err = run_cli("import", tmp_path / "empty")
    assert code == 2 and "docs/importers.md" in err


def test_an_import_overwrites_nothing(tmp_path):
    np.save(tmp_path / "x.npy", np.float32([1]))
    dump = import_to(tmp_path / "x.npy", tmp_path / "run")
    assert run_cli("import", tmp_path / "x.npy", "--out", tmp_path / "run")[0] == 2
    assert compare(dump, dump).rows == 1
