"""Runs of engines, recorded: rows find each other whatever the schedule was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import engine_model
from tests.support import engine_stubs as stubs
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.dumps import capture
from verify.dumps.engines import attach, detach
from verify.dumps.engines.batches import EngineInterfaceError
from verify.dumps.engines.session import engine_taps
from verify.dumps.format import Dump, open_dump
from verify.dumps.format.schema import Sequence, Workload
from verify.dumps.hf.prompts import name_sequences
from verify.errors import UsageError

PROMPTS = {
    "7-a1": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3],
    "7-a2": [2, 7, 1, 8],
    "7-a3": [1, 6, 1, 8, 0, 3, 3],
}
TOKENS = 4
RUNNERS = {
    "vllm": (engine_model.TinyModel, stubs.Runner),
    "vllm-prepared": (engine_model.TinyModel, stubs.PreparingRunner),
    "sglang": (engine_model.SglangModel, stubs.SglangRunner),
}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    stubs.fake_vllm(monkeypatch)
    yield
    detach()


def new_runner(kind: str = "vllm", **options: Any) -> Any:
    model_class, runner_class = RUNNERS[kind]
    keys = engine_model.PagedKeys(engine_model.new_cache())
    return runner_class(model_class(lambda batch: keys), keys, **options)


def record(
    path: Path, kind: str = "vllm", *, budget: int = 64, every: int = 1, pad: int = 1, plant: Any = None,
    **options: Any,
) -> Dump:  # fmt: skip
    runner = new_runner(kind, pad=pad)
    if plant is not None:
        plant(runner.model)
    engine = kind.partition("-")[0]
    with torch.inference_mode(), attach(runner, path, engine=engine, **options):
        runner.profile_run()
        runner.capture_model()
        stubs.serve(runner, PROMPTS, budget=budget, tokens=TOKENS, every=every)
    return open_dump(path)


def record_plain(path: Path, names: dict[str, str] | None = None) -> Dump:
    """Each prompt alone, without an engine, greedy; what ``verify.dumps.capture`` makes of it."""
    keys: dict[str, Any] = {}
    model = engine_model.TinyModel(lambda batch: keys["now"])
    sequences = name_sequences(list(PROMPTS.values()))
    if names is not None:
        sequences = [Sequence(id=n, prompt=p) for n, p in zip(names, PROMPTS.values(), strict=True)]
    workload = Workload(sequences=sequences)
    options = {"level": "digest", "taps": engine_taps(model), "workload": workload}
    with torch.inference_mode(), capture(model, path, **options) as run:
        for sequence in sequences:
            keys["now"], text, done = engine_model.PlainKeys(), list(sequence.prompt), 0
            for _ in range(TOKENS):
                ids = torch.tensor([text[done:]])
                at = torch.arange(done, len(text))[None]
                done = len(text)
                kept = [ids.shape[1] - 1]
                with run.step(at.numpy(), [sequence.id], kept=kept):
                    run.record("tokens.in", ids, axes="b t")
                    hidden = model(ids, at)
                    logits = model.compute_logits(hidden[:, -1:])
                    run.record("logits", logits, axes="b t v", columns=kept)
                text.append(int(logits[0, -1].argmax()))
            sequence.generated = text[len(sequence.prompt) : -1]
        run.complete(sequences, {})
    return open_dump(path)


SCHEDULES = {"whole": {}, "chunked": {"budget": 5, "every": 2, "pad": 4}}


@pytest.mark.parametrize("kind", ["vllm", "vllm-prepared"])
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=list(SCHEDULES))
def test_an_engine_against_a_plain_run(tmp_path: Path, kind: str, schedule: Any) -> None:
    plain = record_plain(tmp_path / "plain")
    served = record(tmp_path / "served", kind, **schedule)
    result = bisect(plain, served)
    taps = {tap.tap: tap for tap in result.comparison.taps}
    rows = sum(len(prompt) + TOKENS - 1 for prompt in PROMPTS.values())
    for name in ("self_attn.qkv_proj.out", "self_attn.o_proj.out", "mlp.0.out", "out", "out.1"):
        found = taps[f"model.layers.1.{name}"]
        assert (found.rows, found.max_abs) == (rows, 0.0), name
    assert (taps["logits"].rows, taps["logits"].max_abs) == (TOKENS * len(PROMPTS), 0.0)
    assert served.manifest.capture["engine"]["skipped"] == 2
    assert {s.id: s.generated for s in served.manifest.workload.sequences} == {
        s.id: s.generated for s in plain.manifest.workload.sequences
    }


@pytest.mark.parametrize("kind", RUNNERS)
def test_schedules_align(tmp_path: Path, kind: str) -> None:
    a = record(tmp_path / "a", kind)
    b = record(tmp_path / "b", kind, budget=5, every=2, pad=4)
    result = bisect(a, b)
    if kind == "sglang":  # it computes logits behind each chunk, and does not say which choose
        assert result.verdict is Verdict.INCOMPLETE, result.summary
        assert all("logits" in what for what in result.not_compared), result.not_compared
    else:
        assert result.verdict is Verdict.IDENTICAL, result.summary
    padding = [sum(s is None for s in b.rows(r).sequence) for r in b.records()]
    assert max(padding) > 0
    assert max(r.step for r in b.records()) > max(r.step for r in a.records())


@pytest.mark.parametrize("options", [{}, {"level": "full", "edges": "trace"}])
def test_a_fault_is_found_across_schedules(tmp_path: Path, options: Any) -> None:
    def plant(model: Any) -> None:
        product = model.model.layers[1].mlp[2]
        right = product.forward

        def forward(x: torch.Tensor) -> torch.Tensor:
            out = right(x).clone()
            out[..., 3] *= 1.5
            return out

        product.forward = forward

    a = record(tmp_path / "a", **options)
    b = record(tmp_path / "b", budget=5, every=2, pad=4, plant=plant, **options)
    result = bisect(a, b)
    assert result.origins[0].tap == "model.layers.1.mlp.2.out"
    assert result.exit_code == 1


def test_in_place_norms_are_taken_before_and_after(tmp_path: Path) -> None:
    dump = record(tmp_path / "run", level="full", edges="identity")
    by_tap = {r.tap: r for r in dump.records() if r.step == 0}
    norm = "model.layers.1.input_layernorm"
    before = dump.read_words(by_tap[f"{norm}.in.0"]).view("<f4")
    after = dump.read_words(by_tap[f"{norm}.out"]).view("<f4")
    stream = dump.read_words(by_tap[f"{norm}.out.1"]).view("<f4")
    old = dump.read_words(by_tap["model.layers.0.out.1"]).view("<f4")
    assert (stream == old + before).all() and not (before == after).any()


def test_request_ids_may_name_sequences(tmp_path: Path) -> None:
    dump = record(tmp_path / "run", names="request")
    assert {s.id for s in dump.manifest.workload.sequences} == set(PROMPTS)
    assert dump.manifest.settings["engine_version"] == "0.0-stub"


def test_everything_is_as_before_when_detached(tmp_path: Path) -> None:
    runner = new_runner()
    held = dict(vars(runner))
    attached = attach(runner.model, tmp_path / "run")  # the runner is found from the model
    assert attached.engine.runner is runner
    with pytest.raises(UsageError, match="recorded already"):
        attach(runner, tmp_path / "again")
    assert detach(runner) == [str(tmp_path / "run")]
    assert vars(runner).keys() == held.keys() and "compute_logits" not in vars(runner.model)
    assert not runner.model._forward_pre_hooks and not runner.model._forward_hooks
    assert open_dump(tmp_path / "run").complete


def test_what_an_engine_must_have(tmp_path: Path) -> None:
    with pytest.raises(EngineInterfaceError, match="no worker, model runner or model"):
        attach(object(), tmp_path / "a")
    with pytest.raises(UsageError, match="enforce_eager"):
        attach(new_runner(eager=False), tmp_path / "b")
    runner = new_runner()
    runner.input_batch = SimpleNamespace(requests=[], num_reqs=0)
    runner._order = lambda scheduler_output: list(scheduler_output.num_scheduled_tokens)
    runner.requests["x"] = stubs.Request("x", [1, 2])
    scheduled = SimpleNamespace(num_scheduled_tokens={"x": 2}, scheduled_new_reqs=[])
    with torch.inference_mode(), attach(runner, tmp_path / "c"):
        with pytest.raises(EngineInterfaceError, match="req_ids") as caught:
            runner.execute_model(scheduled)
        assert "0.0-stub" in str(caught.value) and "num_reqs, requests" in str(caught.value)


def test_attention_that_is_told_of_another_batch(tmp_path: Path) -> None:
    """A fault of the engine's own: metadata of the step before."""
    runner = new_runner()
    fill, held = runner._fill, []

    def stale(counts: Any, order: Any) -> Any:
        held.append(fill(counts, order))
        return (held[0][0], *held[-1][1:])

    runner._fill = stale
    refused = pytest.raises(EngineInterfaceError, match="another batch than was scheduled")
    with torch.inference_mode(), attach(runner, tmp_path / "run"), refused:
        stubs.serve(runner, PROMPTS, budget=64, tokens=TOKENS, every=1)
