"""Recording a generation run of a Hugging Face model: what `verify capture` calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from collections.abc import Sequence as Listing
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from verify.dumps.capture import capture
from verify.dumps.capture.manifest import describe_model
from verify.dumps.format.schema import Sequence, Tape, Workload
from verify.dumps.hf.generate import Plan, Progress, generate
from verify.dumps.hf.kv_cache import KV_CACHES
from verify.dumps.hf.load import LoadedModel, load_model
from verify.dumps.hf.prompts import encode_prompt, fill_batch, name_sequences
from verify.dumps.hf.tape import read_tape
from verify.dumps.window import Window
from verify.env.observed import record_kernels
from verify.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Request:
    """A generation run to record.

    ``model``: see :func:`load_model`. ``batch``: rows that the prompts are cycled to. ``tape``: a
    dump whose tokens are forced; then ``tokens`` only shortens it. ``raw``: no chat template.
    """

    model: str
    prompts: tuple[str, ...]
    tokens: int = 32
    dtype: str = "fp32"
    attn: str = "sdpa"
    prefill_chunk: int | None = None
    batch: int | None = None
    kv_cache: str = "native"
    taps: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    level: str = "full"
    edges: str = "trace"
    byte_budget: int | None = None
    steps: str | None = None
    rows: str | None = None
    tape: Path | None = None
    raw: bool = False
    threads: int | None = None
    kernels: bool = False
    """Also count the kernels that are launched; the profiler slows the run."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came out: the dump, the generated texts by sequence id, and sizes."""

    path: Path
    texts: dict[str, str]
    tokens: dict[str, int]
    records: int
    bytes: int
    seconds: float


def check_request(request: Request) -> None:
    """Refuse what can be refused before a model is loaded.

    Raises:
        ArgumentError: a number that is too small, an unknown choice, or a window that is none.
    """
    Window.parse(request.steps, request.rows)
    numbers = {
        "tokens": request.tokens,
        "prefill_chunk": request.prefill_chunk,
        "batch": request.batch,
        "threads": request.threads,
        "byte_budget": request.byte_budget,
    }
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ArgumentError(
                "a number that is too small", where=name, found=value, allowed=">= 1"
            )
    if request.kv_cache not in KV_CACHES:
        raise ArgumentError(
            "unknown kv_cache",
            where="kv_cache",
            found=request.kv_cache,
            allowed=", ".join(KV_CACHES),
        )
    if not request.prompts:
        raise ArgumentError("no prompt is given", where="prompts", hint="pass --prompt TEXT")


def record_generation(
    request: Request,
    out: str | Path,
    *,
    loaded: LoadedModel | None = None,
    plant: Callable[[torch.nn.Module], None] | None = None,
    progress: Progress = lambda done, total, what: None,
) -> Recorded:
    """Load the model, generate, and record everything into the new folder ``out``.

    Args:
        loaded: the model, if it is in memory already in the dtype and attention of ``request``.
        plant: called with the model before the capture begins, to change it on purpose.
        progress: see :data:`Progress`.

    Raises:
        VerifyError: each with what to do; nothing is overwritten.
    """
    check_request(request)
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    if loaded is None:
        progress(0, 0, "loading the model")
        loaded = load_model(request.model, dtype=request.dtype, attn=request.attn)
    if plant is not None:
        plant(loaded.model)
    sequences = _sequences(request, loaded)
    forced, tape = _forced(request, sequences)
    plan = _plan(request, loaded, sequences, forced)
    began = time.perf_counter()
    with capture(
        loaded.model,
        out,
        taps=request.taps or None,
        ops=request.ops,
        level=request.level,
        edges=request.edges,  # type: ignore[arg-type]
        workload=Workload(sequences=sequences, tape=tape),
        settings=_settings(request, loaded),
        model_info=describe_model(loaded.model, loaded.name),
        byte_budget=request.byte_budget,
        steps=request.steps,
        rows=request.rows,
        command=sys.argv,
    ) as run:
        with record_kernels() if request.kernels else nullcontext():
            chosen, candidates = generate(loaded.model, plan, run, progress)
        done = [
            Sequence(id=s.id, prompt=s.prompt, generated=ids)
            for s, ids in zip(sequences, chosen, strict=True)
        ]
        run.complete(done, _token_text(loaded.tokenizer, done, candidates))
    return Recorded(
        path=Path(out),
        texts={s.id: loaded.tokenizer.decode(s.generated) for s in done},
        tokens={s.id: len(s.generated) for s in done},
        records=run.records,
        bytes=run.writer.bytes_written,
        seconds=time.perf_counter() - began,
    )


def _sequences(request: Request, loaded: LoadedModel) -> list[Sequence]:
    prompts = [
        encode_prompt(loaded.tokenizer, prompt, raw=request.raw) for prompt in request.prompts
    ]
    return name_sequences(fill_batch(prompts, request.batch))


def _forced(
    request: Request, sequences: list[Sequence]
) -> tuple[list[list[int]] | None, Tape | None]:
    if request.tape is None:
        return None, None
    forced, tape = read_tape(request.tape, sequences)
    return [ids[: request.tokens] for ids in forced], tape


def _plan(
    request: Request,
    loaded: LoadedModel,
    sequences: list[Sequence],
    forced: list[list[int]] | None,
) -> Plan:
    end = _end_ids(loaded)
    padding = getattr(loaded.tokenizer, "pad_token_id", None)
    return Plan(
        sequences=sequences,
        tokens=request.tokens if forced is None else max(map(len, forced)),
        padding=padding if padding is not None else min(end, default=0),
        end=end,
        chunk=request.prefill_chunk,
        kv_cache=request.kv_cache,
        forced=forced,
    )


def _end_ids(loaded: LoadedModel) -> frozenset[int]:
    """Ids that end a text, from the generation config and the tokenizer."""
    config = getattr(loaded.model, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    ids = set(found if isinstance(found, list | tuple) else [found])
    ids.add(getattr(loaded.tokenizer, "eos_token_id", None))
    return frozenset(int(token) for token in ids if token is not None)


def _settings(request: Request, loaded: LoadedModel) -> dict[str, Any]:
    """How the run computes; what the capture selects stands elsewhere."""
    table = asdict(request)
    kept = ("attn", "batch", "kv_cache", "prefill_chunk", "raw")
    return {
        **{name: table[name] for name in kept},
        "prompts": len(request.prompts),
        "model_source": loaded.source,
    }


def _token_text(
    tokenizer: Any, sequences: Listing[Sequence], candidates: set[int]
) -> dict[str, str]:
    ids = set(candidates)
    for sequence in sequences:
        ids |= {*sequence.prompt, *sequence.generated}
    return {str(token): tokenizer.decode([token]) for token in sorted(ids)}
