"""A fused Llama under the names of a transformers one, by the map that comes with the package."""

import inspect
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from examples.fused_llama import Fault, small_llama
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.certify.own import own_roundings
from verify.compare.run import compare
from verify.dumps.digests import row_digests
from verify.dumps.format import Dump
from verify.errors import ArgumentError
from verify.formats import decode, encode
from verify.taps.apply import apply_map
from verify.taps.load import load_map
from verify.taps.view import View

MAP = load_map("vllm-llama")


def words(dump: Dump, tap: str) -> np.ndarray:
    return np.concatenate([dump.read_words(r) for r in dump.records() if r.tap == tap])


def test_every_tap_of_a_is_compared_or_declared(runs):
    x = apply_map(*runs(), MAP)
    result = compare(x.a, x.b)
    assert not result.unmatched
    assert len(result.taps) == 3 + 3 * 20 + 3  # ids, positions, embeddings; a layer; norm, logits
    assert result.rows == 11 * len(result.taps)
    assert not x.not_made


def test_presented_words_are_those_of_the_run(runs):
    a, b = runs("bfloat16")
    x = apply_map(a, b, MAP)
    fused = words(b, "model.layers.1.self_attn.qkv_proj.out")
    for name, start, stop in (("q", 0, 64), ("k", 64, 96), ("v", 96, 128)):
        part = words(x.b, f"model.layers.1.self_attn.{name}_proj.out")
        assert np.array_equal(part, fused[:, start:stop])
    hidden, residual = (words(b, f"model.layers.1.{port}") for port in ("out", "out.1"))
    exact = decode(hidden, "bfloat16") + decode(residual, "bfloat16")
    assert np.array_equal(words(x.b, "model.layers.1.out"), encode(exact, "bfloat16"))
    # Whichever engine adds them: the sum is the stream that the next norm of the run computed.
    assert np.array_equal(
        words(x.b, "model.layers.1.out"), words(b, "model.layers.2.input_layernorm.out.1")
    )


def test_sums_are_marked_as_computed_by_the_comparison(runs):
    x = apply_map(*runs(), MAP)
    record = next(r for r in x.b.records() if r.tap == "model.layers.0.out")
    assert "added by the comparison, not by the run" in record.attributes["made from"]
    assert any("sums that the comparison computed" in note for note in x.b.problems)


def test_blocks_rows_and_digests_of_a_view_agree_with_its_words(runs):
    x = apply_map(*runs(), MAP)
    for record in x.b.records():
        whole = x.b.read_words(record)
        assert whole.shape == (record.n_rows, record.row_length)
        blocks = list(x.b.read_blocks(record, 3 * whole.itemsize * record.row_length))
        assert [start for start, _ in blocks] == list(range(0, record.n_rows, 3))
        assert np.array_equal(np.concatenate([block for _, block in blocks]), whole)
        assert np.array_equal(x.b.rows(record).digest, row_digests(whole, record.dtype))
        assert np.array_equal(x.b.read_words(record, 0, 1), whole[:1])


def test_inputs_lead_through_taps_that_only_one_run_has(runs):
    x = apply_map(*runs(), MAP)
    for view in (x.a, x.b):
        records = {record.seq: record for record in view.records()}
        found = {
            record.tap: {
                records[i.seq].tap if i.kind == "record" else i.name for i in record.inputs
            }
            for record in records.values()
            if record.step == 0
        }
        layer = "model.layers.1."
        assert found[f"{layer}self_attn.attn.in.q"] >= {f"{layer}self_attn.q_proj.out"}
        assert found[f"{layer}self_attn.attn.out"] == {
            *(f"{layer}self_attn.attn.in.{name}" for name in "qkv"),
            "model.layers.0.self_attn.attn.in.mask",
        }
        assert found[f"{layer}mlp.down_proj.in.0"] == {
            f"{layer}mlp.gate_proj.out", f"{layer}mlp.up_proj.out"
        }  # fmt: skip
        assert found[f"{layer}self_attn.q_proj.out"] == {
            f"{layer}input_layernorm.out", f"{layer}self_attn.q_proj.weight"
        }  # fmt: skip


def test_parts_of_fused_weights_are_known_by_their_digests(runs):
    a, b = runs()
    x = apply_map(a, b, MAP)
    shown, own = x.b.manifest.model.weights, x.a.manifest.model.weights
    assert shown == own
    assert "model.rotary_emb.inv_freq" not in own


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_honest_rounding_is_no_defect(runs, dtype: str):
    x = apply_map(*runs(dtype), MAP)
    result = bisect(x.a, x.b)
    assert {f.verdict for f in result.findings} <= {Verdict.ROUNDING, Verdict.UNRESOLVED}
    assert not any("weights" in finding.title for finding in result.findings)


FAULTS = [
    (Fault("heads of v exchanged", 1), "model.layers.1.self_attn.attn.in.v"),
    (Fault("attention scale", 1), "model.layers.1.self_attn.attn.out"),
    (Fault("rope base", 1), "model.layers.1.self_attn.cache.in.k"),
    (Fault("gate cut off", 1), "model.layers.1.mlp.down_proj.in.0"),
    (Fault("residual doubled", 2), "model.layers.2.input_layernorm.in.0"),
    (Fault("residual doubled after attention", 1),
     "model.layers.1.post_attention_layernorm.in.0"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "tap"), FAULTS, ids=[fault.kind for fault, _ in FAULTS])
def test_a_planted_fault_is_found_where_it_is(runs, fault: Fault, tap: str):
    """The largest origin is the tap of the fault; rounding of float32 may begin before it."""
    x = apply_map(*runs(fault=fault), MAP)
    result = bisect(x.a, x.b)
    gross = [o.tap for o in result.origins if o.proven and o.measure["relative L2"] > 1e-4]
    assert gross[0] == tap
    assert result.exit_code == 1


def test_records_are_described_in_the_layout_of_a(runs):
    a, b = runs()
    x = apply_map(a, b, MAP)
    shown = [r for r in x.b.records() if r.tap == "model.layers.0.self_attn.attn.in.q"]
    assert {record.axes for record in shown} == {"b h t d"}
    assert [record.shape for record in shown] == [[1, 4, 9, 16], [1, 4, 1, 16], [1, 4, 1, 16]]


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> dict[str, str]:
    """Folder with the weights of the transformers model, in each dtype."""
    folder = tmp_path_factory.mktemp("weights")
    for dtype in ("float32", "bfloat16"):
        tensors = small_llama(getattr(torch, dtype)).state_dict()
        save_file(tensors, folder / f"{dtype}.safetensors")
    return {dtype: str(folder / f"{dtype}.safetensors") for dtype in ("float32", "bfloat16")}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_side_alone_is_rounding_where_the_other_differs(runs, weights, dtype: str):
    """FP64 of what each side read, with the weights of A for both: no implementation has to run."""
    x = apply_map(*runs(dtype), MAP)
    result = bisect(x.a, x.b, checkers=[own_roundings(x.a, x.b, weights[dtype])])
    verdicts = {finding.verdict for finding in result.findings}
    assert verdicts == {Verdict.ROUNDING, Verdict.UNRESOLVED}
    rounding = {t for f in result.findings if f.verdict is Verdict.ROUNDING for t in f.taps}
    assert "model.layers.1.mlp.down_proj.out" in rounding


@pytest.mark.parametrize(
    ("fault", "tap"),
    [
        (Fault("gate cut off", 1), "model.layers.1.mlp.down_proj.in.0"),
        (Fault("attention scale", 1), "model.layers.1.self_attn.attn.out"),
        (Fault("residual doubled", 2), "model.layers.2.input_layernorm.in.0"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_fault_below_rounding_of_bfloat16_is_a_defect(runs, weights, fault: Fault, tap: str):
    """Every tap behind the first layer differs by rounding already, so no origin shows the fault."""
    x = apply_map(*runs("bfloat16", fault=fault), MAP)
    result = bisect(x.a, x.b, checkers=[own_roundings(x.a, x.b, weights["bfloat16"])])
    blamed = {t for f in result.findings if f.verdict is Verdict.DEFECT for t in f.taps}
    assert blamed == {tap}


def test_digests_alone_compare_what_is_only_renamed(runs):
    x = apply_map(*runs(level="digest"), MAP)
    result = compare(x.a, x.b)
    compared = {tap.tap for tap in result.taps}
    assert "model.layers.1.post_attention_layernorm.in.0" in compared
    assert "model.layers.1.self_attn.q_proj.out" not in compared
    lacking = {u.tap for u in result.unmatched if u.side == "a"}
    assert {"model.layers.1.self_attn.q_proj.out", "model.layers.1.mlp.up_proj.out"} <= lacking
    # What takes a sum is not presented; the same tensor is compared where the next norm is given it.
    assert "model.layers.1.out" not in compared | lacking
    assert "model.layers.2.input_layernorm.in.0" in compared
    assert any("rearranging takes the words" in note for note in x.b.problems)


def test_a_view_has_all_that_a_dump_has():
    """A reader method that a view inherited would look into the stored parts that it has not."""
    own = {
        name
        for name, member in vars(Dump).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }
    assert own <= set(vars(View)), own - set(vars(View))


def test_the_map_works_from_the_command_line(runs, capsys):
    from typer.testing import CliRunner

    from verify.cli.app import app

    a, b = runs(fault=FAULTS[4][0])
    done = CliRunner().invoke(
        app, ["bisect", str(a.path), str(b.path), "--map", "vllm-llama", "--json"]
    )
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    gross = [o["tap"] for o in found["origins"] if o["measure"]["relative L2"] > 1e-4]
    assert gross[0] == "model.layers.2.input_layernorm.in.0"
    done = CliRunner().invoke(app, ["compare", str(a.path), str(b.path), "--map", "vllm-llama"])
    assert done.exit_code == 1
    done = CliRunner().invoke(
        app, ["bisect", str(a.path), str(b.path), "--map", "vllm-llama", "--replay"]
    )
    assert isinstance(done.exception, ArgumentError)
