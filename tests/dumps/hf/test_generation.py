"""Generation runs of a toy Llama, recorded: the same rows whatever the schedule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tests.support.dump_reading import record_of, row_table, values_of
from tests.support.toy_model import save_toy
from verify.dumps.format import open_dump
from verify.dumps.hf.load import load_model
from verify.dumps.hf.record import Request, record_generation
from verify.errors import ArgumentError, NotComparableError
from verify.formats import decode, encode

LONG, SHORT = "a lighthouse keeper", "sky"
CORE = "model.layers.0.self_attn"


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("model") / "toy")


@pytest.fixture(scope="module")
def run(toy_folder, tmp_path_factory):
    """Record a run with these settings, each once; returns (what came out, the dump)."""
    known = {}

    def record(prompts=(LONG,), **settings):
        request = Request(model=str(toy_folder), prompts=prompts, **{"tokens": 4, **settings})
        if request not in known:
            path = tmp_path_factory.mktemp("runs") / "run"
            known[request] = record_generation(request, path)
        return known[request], open_dump(known[request].path)

    return record


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_capture_changes_no_bit_of_the_logits(toy_folder, run, dtype, attn):
    _, dump = run(dtype=dtype, attn=attn)
    loaded = load_model(str(toy_folder), dtype=dtype, attn=attn)
    (track,) = dump.tokens().values()
    ids = torch.tensor([track.prompt + track.generated[:-1]])
    split = len(track.prompt)
    with torch.no_grad():
        out = loaded.model(ids[:, :split], attention_mask=torch.ones_like(ids[:, :split]))
        logits = [out.logits[:, -1]]
        for column in range(split, ids.shape[1]):
            out = loaded.model(ids[:, column : column + 1], cache=out.cache)
            logits.append(out.logits[:, -1])
    word = {"fp32": torch.int32, "bf16": torch.int16}[dtype]
    for step, expected in enumerate(logits):
        found = dump.read_words(record_of(dump, "logits", step=step))
        if step == 0:  # the capture asks for one row of logits, this loop for all
            expected = loaded.model.lm_head(_last_norm(loaded.model, ids[:, :split]))
        assert found.tobytes() == expected.detach().view(word).numpy().tobytes()


def _last_norm(model, ids):
    with torch.no_grad():
        return model.model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, -1]


def test_the_dump_says_what_ran(run, toy_folder):
    recorded, dump = run()
    manifest = dump.manifest
    assert dump.complete
    assert manifest.settings["attn"] == "sdpa"
    assert manifest.settings["dtype"] == "float32"
    assert manifest.settings["weights_alignment"] == 64
    assert manifest.settings["kv_cache"] == "native"
    assert manifest.model.architecture == "LlamaForCausalLM"
    assert (
        manifest.model.weights["lm_head.weight"]
        == (manifest.model.weights["model.embed_tokens.weight"])
    )
    assert {"positions.in", "logits", "tokens.out", f"{CORE}.attn.in.mask"} <= set(manifest.taps)
    assert "unmatched_taps" not in manifest.capture
    (track,) = dump.tokens().values()
    assert len(track.generated) == 4
    assert track.entered[len(track.prompt)] == track.generated[0]
    (sequence,) = manifest.workload.sequences
    assert sequence.generated == track.generated
    assert set(map(str, track.prompt + track.generated)) <= set(manifest.workload.token_text)
    assert recorded.tokens == {sequence.id: 4}


@pytest.mark.parametrize(
    ("prompt", "settings", "prompts"),
    [
        (LONG, {"prefill_chunk": 8}, (LONG,)),
        (LONG, {"prefill_chunk": 1}, (LONG,)),
        (LONG, {"batch": 2}, (LONG,)),
        (LONG, {}, (LONG, SHORT)),
        (SHORT, {}, (LONG, SHORT)),
        (SHORT, {"batch": 3, "prefill_chunk": 7}, (LONG, SHORT)),
    ],
)
def test_rows_align_with_a_single_whole_prefill(run, prompt, settings, prompts):
    """Every row of a single run is in the other schedule under the same name, and its numbers are
    the same up to rounding; rows that only the other one has are of other sequences."""
    alone = run((prompt,))[1]
    single, other = row_table(alone), row_table(run(prompts, **settings)[1])
    (name,) = alone.tokens()
    own = {key for key in other if key[2] == name}
    assert {key[:4] for key in single} == {key[:4] for key in own if key[4] == 0}
    # A key row has another visit when a later read of the cache had other bits: never here.
    assert not [key for key in own if key[4]]
    for tap in ("tokens.in", "positions.in", f"{CORE}.attn.in.mask", "model.embed_tokens.out"):
        keys = [key for key in single if key[0] == tap]
        assert keys
        assert all(single[key] == other[key] for key in keys)
    for tap in (f"{CORE}.attn.in.k", "model.layers.1.out", "logits"):
        for key in (key for key in single if key[0] == tap):
            a, b = (
                np.frombuffer(table[key][1], np.float32).astype(np.float64)
                for table in (single, other)
            )
            # Roundings in another order of addition: far from what another row would show.
            assert np.abs(a - b).max() < 1e-3 * np.abs(a).max()


def test_left_padding_is_listed_and_never_named(run):
    _, dump = run((LONG, SHORT))
    record = record_of(dump, "model.embed_tokens.out")
    rows = dump.rows(record)
    padding = [i for i, name in enumerate(rows.sequence) if name is None]
    lengths = [len(track.prompt) for track in dump.tokens().values()]
    assert len(padding) == max(lengths) - min(lengths)
    assert set(rows.position[padding]) == {-1}
    assert record.n_rows == 2 * max(lengths)


def test_decode_stores_only_new_keys(run):
    _, dump = run()
    for step in (1, 2, 3):
        key = record_of(dump, f"{CORE}.attn.in.k", step=step)
        assert key.n_rows == 1
        assert key.carried == key.shape[2] - 1


def test_e4m3_rounds_what_attention_reads_and_not_what_enters(run):
    _, dump = run(kv_cache="e4m3")
    for name in "kv":
        read = values_of(dump, record_of(dump, f"{CORE}.attn.in.{name}"))
        entering = values_of(dump, record_of(dump, f"{CORE}.cache.in.{name}"))
        rounded = decode(encode(entering, "float8_e4m3fn", saturate=True), "float8_e4m3fn")
        assert np.array_equal(read, rounded)
        assert not np.array_equal(entering, rounded)
        ops = record_of(dump, f"{CORE}.attn.in.{name}").ops
        assert ops.index("aten.clamp") < ops.index("aten._to_copy[float8_e4m3fn]")
    # Layer 0 has the keys of the native run on entering: the prefill itself reads rounded ones.
    native = run()[1]
    entering, same = (values_of(d, record_of(d, f"{CORE}.cache.in.k")) for d in (dump, native))
    assert np.array_equal(entering, same)


def negate_the_last_norm(model):
    """Turns the order of all logits round: the choices differ from the first on."""
    model.model.norm.weight.data.neg_()


def test_a_tape_forces_tokens_and_records_the_choice(run, toy_folder, tmp_path):
    free, free_dump = run()
    request = Request(model=str(toy_folder), prompts=(LONG,), tape=free.path)
    record_generation(request, tmp_path / "taped", plant=negate_the_last_norm)
    taped = open_dump(tmp_path / "taped")
    (name,) = free_dump.tokens()
    track, forced = free_dump.tokens()[name], taped.tokens()[name]
    assert taped.manifest.workload.tape.run_id == free_dump.manifest.run_id
    start = len(track.prompt)
    assert [forced.entered[start + i] for i in range(3)] == track.generated[:3]
    assert len(forced.generated) == 4
    assert all(a != b for a, b in zip(forced.generated, track.generated, strict=True))
    # A tape can be handed on: what was forced counts, not what was chosen.
    again = run(tape=taped.path)[1].tokens()[name]
    assert [again.entered[start + i] for i in range(3)] == track.generated[:3]
    assert again.generated == track.generated


def test_a_tape_serves_a_batch_of_the_same_prompt_and_no_other_prompt(run):
    free, free_dump = run()
    _, batch = run(batch=2, tape=free.path, tokens=3)
    (track,) = free_dump.tokens().values()
    for forced in batch.tokens().values():
        start = len(forced.prompt)
        assert [forced.entered[start + i] for i in range(2)] == track.generated[:2]
    with pytest.raises(
        NotComparableError, match=r"(?s)the tape is of other prompts.*chat template"
    ):
        run((SHORT,), tape=free.path)


def test_a_sequence_that_has_ended_is_padding_afterwards(run, toy_folder, tmp_path):
    _, free_dump = run((LONG, SHORT), tokens=6)
    tracks = list(free_dump.tokens().values())
    # The first sequence ends with its second token: a token that only it generates there.
    end = tracks[0].generated[1]
    cut = 1 + tracks[0].generated.index(end)
    loaded = load_model(str(toy_folder))
    loaded.model.generation_config.eos_token_id = end
    request = Request(model=str(toy_folder), prompts=(LONG, SHORT), tokens=6)
    recorded = record_generation(request, tmp_path / "run", loaded=loaded)
    dump = open_dump(tmp_path / "run")
    first = dump.tokens()[tracks[0].sequence]
    assert first.generated == tracks[0].generated[:cut]
    last = [r for r in dump.records() if r.tap == "model.embed_tokens.out"][-1]
    assert dump.rows(last).sequence[0] is None
    assert recorded.tokens[first.sequence] == cut


def test_raw_prompts_have_no_template(run):
    templated, raw = run((SHORT,)), run((SHORT,), raw=True)
    (a,), (b,) = (dump.tokens().values() for _, dump in (templated, raw))
    assert len(b.prompt) == len(SHORT) < len(a.prompt)
    assert a.sequence != b.sequence


def test_a_planted_change_is_in_the_weights(run, toy_folder, tmp_path):
    def plant(model):
        model.model.layers[1].self_attn.o_proj.weight.data.mul_(1.001)

    request = Request(model=str(toy_folder), prompts=(LONG,), tokens=2)
    record_generation(request, tmp_path / "run", plant=plant)
    a, b = (d.manifest.model.weights for d in (run()[1], open_dump(tmp_path / "run")))
    assert [n for n in a if a[n] != b[n]] == ["model.layers.1.self_attn.o_proj.weight"]


def test_levels_keep_less(run):
    sizes = {level: run(level=level)[0].bytes for level in ("full", "digest", "stats")}
    dump = run(level="digest")[1]
    record = record_of(dump, "logits")
    assert record.kept == "digest"
    assert dump.rows(record).sketch.shape == (1, 16)
    assert record_of(dump, "tokens.out").kept == "full"
    assert sizes["stats"] < sizes["digest"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 0}, "tokens"),
        ({"prefill_chunk": -1}, "prefill_chunk"),
        ({"kv_cache": "int4"}, "(?s)unknown kv_cache.*native, e4m3"),
        ({"dtype": "int8"}, "(?s)unknown dtype.*fp32, bf16, fp16"),
        ({"attn": "magic"}, "(?s)unknown attn.*sdpa, eager"),
        ({"prompts": ()}, "no prompt"),
        ({"prompts": ("",), "raw": True}, "a prompt without tokens"),
        ({"prompts": (LONG, SHORT), "batch": 1}, "fewer rows than prompts"),
    ],
)
def test_bad_requests_leave_nothing_behind(toy_folder, tmp_path, change, message):
    request = dataclasses.replace(Request(model=str(toy_folder), prompts=(LONG,)), **change)
    with pytest.raises(ArgumentError, match=message):
        record_generation(request, tmp_path / "run")
    assert not (tmp_path / "run").exists()
