"""SGLang's dumps, written as its dumper and its older hook write them."""

import importlib.util
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from tests.support.importing import import_to, run_cli
from tests.support.planted import Planted
from verify.compare.run import compare
from verify.dumps.hf.prompts import prompt_hash
from verify.dumps.importers.sglang_dims import parse_dims

IDS = {"r1": [5, 3, 9], "r2": [7, 7]}


def dump(folder, index, step, name, value, rank=0, meta=None, **tags):
    """One file of the dumper."""
    every = {"step": step, "rank": rank, "dump_index": index, "name": name}
    every |= {"recompute_status": "disabled", **tags}
    stem = "___".join(f"{key}={each}" for key, each in every.items())
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"value": value, "meta": {**every, **(meta or {})}}, folder / f"{stem}.pt")


def feed(folder, index, step, tokens):
    """The batch of a step: (request, positions, ids), one behind the other."""
    ids = [token for _, _, some in tokens for token in some]
    positions = [at for _, places, _ in tokens for at in places]
    lengths = [places[-1] + 1 for _, places, _ in tokens]
    for name, value in {
        "input_ids": torch.tensor(ids),
        "positions": torch.tensor(positions),
        "seq_lens": torch.tensor(lengths),
        "rids": [name for name, _, _ in tokens],
    }.items():
        dump(folder, index, step, name, value)
        index += 1
    return index


def hidden(tokens):
    """A tensor [tokens, 2] that says whose token at which position each row is."""
    rows = [[IDS[name][0], at] for name, places, _ in tokens for at in places]
    return torch.tensor(rows, dtype=torch.bfloat16)


def serve(folder, steps):
    index = 1
    for step, tokens in enumerate(steps):
        index = feed(folder, index, step, tokens)
        x = hidden(tokens)
        dump(folder, index, step, "non_intrusive__model.layers.0.mlp.inputs.0", x)
        dump(folder, index + 1, step, "non_intrusive__model.layers.0.mlp.output", x + 1)
        dump(folder, index + 2, step, "attn_q", x[:, None], layer_id=0, meta={"dims": "t h d"})
        logits = torch.arange(3.0 * len(tokens)).reshape(-1, 3)
        dump(folder, index + 3, step, "next_token_logits", logits[:, :1])
        index += 4


TOGETHER = [
    [("r1", [0, 1, 2], IDS["r1"]), ("r2", [0, 1], IDS["r2"])],
    [("r1", [3], [11]), ("r2", [2], [12])],
]
CHUNKED = [
    [("r2", [0, 1], IDS["r2"])],
    [("r1", [0, 1], IDS["r1"][:2]), ("r2", [2], [12])],
    [("r1", [2], IDS["r1"][2:])],
    [("r1", [3], [11])],
]


def test_rows_are_those_of_the_requests(tmp_path):
    serve(tmp_path / "a" / "dump_1", TOGETHER)
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert [(s.prompt, s.generated) for s in run.manifest.workload.sequences] == [
        (IDS["r1"], [11]), (IDS["r2"], [12]),
    ]  # fmt: skip
    records = {(r.step, r.tap): r for r in run.records()}
    rows = run.rows(records[0, "model.layers.0.mlp.out"])
    names = [f"{prompt_hash(ids)}#0" for ids in IDS.values()]
    assert list(rows.sequence) == [names[0]] * 3 + [names[1]] * 2
    assert rows.position.tolist() == [0, 1, 2, 0, 1]
    assert records[0, "layers.0.attn_q"].axes == "t h d"
    assert run.rows(records[1, "logits"]).position.tolist() == [3, 2]
    assert records[0, "model.layers.0.mlp.in.0"].dtype == "bfloat16"
    assert run.tokens()[names[0]].entered == {0: 5, 1: 3, 2: 9, 3: 11}


def test_another_batching_aligns_by_positions(tmp_path):
    serve(tmp_path / "a", TOGETHER)
    serve(tmp_path / "b", TOGETHER[:1] + TOGETHER[1:])
    one = [[tokens] for step in TOGETHER for tokens in step]
    serve(tmp_path / "c", one)
    a, c = (import_to(tmp_path / name, tmp_path / f"run-{name}") for name in "ac")
    result = compare(a, c, taps=["model.*", "tokens.in"])
    assert all(tap.equal for tap in result.taps) and result.rows == 3 * 7
    assert not result.unmatched


def test_without_the_batch_each_tensor_is_one_row(tmp_path):
    dump(tmp_path / "a", 1, 0, "x", torch.ones(3, 2))
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert run.rows(run.records()[0]).position.tolist() == [-1]
    assert any("positions" in note for note in run.problems)


def test_ranks_and_dims(tmp_path):
    info = {"sglang_parallel_info": {"tp_size": 2}}
    for rank in (0, 1):
        value = torch.full((3, 2), float(rank))
        dump(tmp_path / "a", 1, 0, "q", value, rank=rank, meta={"dims": "t h[tp]", **info})
    run = import_to(tmp_path / "a", tmp_path / "run")
    assert run.ranks == [0, 1]
    assert [r.attributes["layout"] for r in run.records()] == ["shard:1", "shard:1"]
    assert parse_dims("b s h[tp,partial] 1 # dp:=moe", info, 2).axes == ["b", "t", "h", "x3"]
    assert parse_dims("t h[tp,partial]", info, 2).layout == "partial"
    assert parse_dims("t[cp,zigzag] h", info, 2).layout == ""
    assert parse_dims("num_heads*d t", {}, 1).axes == ["x0", "t"]


def test_a_planted_object_in_meta_is_refused(tmp_path):
    touched = tmp_path / "touched"
    dump(tmp_path / "a", 1, 0, "x", torch.ones(2), meta={"hook": Planted(touched)})
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "system" in err and not touched.exists()


def test_a_planted_object_in_a_pass_is_refused(tmp_path):
    folder = tmp_path / "a" / "TP0_PP0_Rank0_pid17"
    folder.mkdir(parents=True)
    touched = tmp_path / "touched"
    torch.save({"model.layers.0.mlp": Planted(touched)}, folder / "Pass00000.pt")
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and "system" in err and not touched.exists()


def test_a_number_that_is_no_rank_is_refused_at_once(tmp_path):
    """Each rank takes a folder, so a process id in the place of a rank must not be taken for one."""
    dump(tmp_path / "a", 1, 0, "x", torch.ones(2), rank=999_999)
    code, _, err = run_cli("import", tmp_path / "a", "--out", tmp_path / "run")
    assert code == 2 and "rank 999999" in err and not (tmp_path / "run").exists()


def test_a_truncated_file_is_refused(tmp_path):
    dump(tmp_path / "a", 1, 0, "x", torch.ones(2))
    (file,) = (tmp_path / "a").iterdir()
    file.write_bytes(file.read_bytes()[:200])
    code, _, err = run_cli("inspect", tmp_path / "a")
    assert code == 2 and file.name in err


def test_the_older_hook(tmp_path):
    folder = tmp_path / "TP0_PP0_Rank0_pid17"
    folder.mkdir()
    batch = "model.forward_batch_info."
    for step, (ids, positions) in enumerate([([5, 3, 9], [0, 1, 2]), ([11], [3])]):
        table = {
            f"{batch}input_ids": torch.tensor(ids),
            f"{batch}positions": torch.tensor(positions),
            f"{batch}seq_lens": torch.tensor([positions[-1] + 1]),
            "model.layers.0.mlp": torch.ones(len(ids), 2),
            "model.layers.0.pair": [torch.ones(1), torch.zeros(1)],
        }
        torch.save(table, folder / f"Pass{step:05d}.pt")
    run = import_to(tmp_path, tmp_path.with_name(f"{tmp_path.name}-run"))
    assert [r.tap for r in run.records() if r.step == 0] == [
        "tokens.in", "model.layers.0.mlp.out", "model.layers.0.pair.out.0",
        "model.layers.0.pair.out.1",
    ]  # fmt: skip
    positions = [run.rows(r).position.tolist() for r in run.records() if r.tap.endswith("mlp.out")]
    assert positions == [[0, 1, 2], [3]]
    assert np.array_equal([s.generated for s in run.manifest.workload.sequences], [[11]])


def tool(name, monkeypatch):
    """A module of SGLang's debug tools without what the engine needs: its own file, run with
    stand-ins for the packages that it would import and does not use here."""
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        pytest.skip("SGLang is not installed")
    file = Path(found.submodule_search_locations[0]) / "srt" / "debug_utils" / f"{name}.py"
    for missing in (
        "zmq", "sglang", "sglang.srt", "sglang.srt.managers", "sglang.srt.managers.io_struct",
        "sglang.srt.runtime_context", "sglang.srt.utils", "sglang.srt.distributed",
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, missing, mock.MagicMock())
    for absent in ("sglang.srt.layers", "sglang.srt.model_executor", "megatron"):
        monkeypatch.setitem(sys.modules, absent, None)
    spec = importlib.util.spec_from_file_location(f"tool_{name}", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_dumper_itself(tmp_path, monkeypatch):
    module = tool("dumper", monkeypatch)
    config = module.DumperConfig(
        enable=True, dir=str(tmp_path), exp_name="a", non_intrusive_mode="all",
        enable_output_console=False,
    )  # fmt: skip
    dumper = module._Dumper(config=config)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    dumper.register_non_intrusive_dumper(model)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for step in range(2):
        expected = model(x + step)
        dumper.dump("mine", expected, dims="t h", layer_id=5)
        dumper.step()
    run = import_to(tmp_path / "a", tmp_path / "run")
    taps = {record.tap for record in run.records()}
    assert {"layers.5.mine", "0.out", "1.out", "0.in.0"} <= taps
    assert sorted({record.step for record in run.records()}) == [0, 1]
    last = [record for record in run.records() if record.tap == "layers.5.mine"][-1]
    assert last.axes == "t h"
    assert run.read_words(last).tolist() == expected.detach().numpy().view("u4").tolist()
