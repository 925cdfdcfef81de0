"""Engines that call a model as vLLM and SGLang do: flattened batches, a paged cache, a forward context,
chunked prefill, continuous batching, padding, dummy runs. The model is tests/support/engine_model.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support.engine_model import BLOCK, PagedKeys, TinyModel


@dataclass
class Request:
    """State of a request, as ``CachedRequestState`` of vLLM has it."""

    req_id: str
    prompt_token_ids: list[int]
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    blocks: list[int] = field(default_factory=list)


class Runner:
    """vLLM's persistent runner. ``pad``: batches are padded to a multiple of it with stale rows."""

    persistent = True

    def __init__(self, model: TinyModel, keys: PagedKeys, *, pad: int = 1, eager: bool = True):
        self.model, self.keys, self.pad = model, keys, pad
        self.requests: dict[str, Request] = {}
        if self.persistent:
            self.input_batch = SimpleNamespace(
                req_ids=[], num_reqs=0,
                num_computed_tokens_cpu=np.zeros(8, np.int32),
            )  # fmt: skip
        config = SimpleNamespace(enforce_eager=eager)
        self.vllm_config = SimpleNamespace(model_config=config)
        self.ids = torch.zeros(64, dtype=torch.int32)
        self.input_ids = SimpleNamespace(gpu=self.ids)
        self.positions = torch.zeros(64, dtype=torch.int64)
        self.free = list(range(63, -1, -1))  # physical blocks in no particular order

    def get_model(self) -> nn.Module:
        return self.model

    def profile_run(self) -> None:
        self._dummy_run(16)

    def capture_model(self) -> None:
        self._dummy_run(4)

    def _dummy_run(self, tokens: int) -> None:
        with forward_context(None):
            self.model(input_ids=self.ids[:tokens], positions=self.positions[:tokens])

    def execute_model(self, scheduler_output: Any) -> dict[str, int]:
        return self._run(scheduler_output.num_scheduled_tokens, self._order(scheduler_output))

    def _order(self, scheduler_output: Any) -> list[str]:
        for new in scheduler_output.scheduled_new_reqs:
            self.requests[new.req_id] = Request(new.req_id, new.prompt_token_ids)
        # Decodes go in front, as attention backends want them; ids in front of None stay behind.
        order = sorted(scheduler_output.num_scheduled_tokens, key=self._is_prefill)
        if self.persistent:
            self.input_batch.req_ids = [*order, None]
            self.input_batch.num_reqs = len(order)
            for row, name in enumerate(order):
                self.input_batch.num_computed_tokens_cpu[row] = self.requests[name].computed
        return order

    def _is_prefill(self, name: str) -> bool:
        state = self.requests[name]
        return state.computed < len(state.prompt_token_ids)

    def _run(self, counts: dict[str, int], order: list[str]) -> dict[str, int]:
        metadata, last, padded = self._fill(counts, order)
        ids, positions = self.ids[:padded], self.positions[:padded]
        with forward_context({"model.layers.0.self_attn.attn": metadata}):
            self.keys.metadata = metadata
            hidden = self.model(input_ids=ids, positions=positions)
            self.keys.metadata = None
        logits = self.model.compute_logits(hidden[last])
        chosen = {}
        for name, row in zip(order, logits, strict=True):
            state = self.requests[name]
            state.computed += counts[name]
            if state.computed >= len(state.prompt_token_ids):
                chosen[name] = int(row.argmax())
                state.tokens.append(chosen[name])
        return chosen

    def _fill(self, counts: dict[str, int], order: list[str]) -> tuple[Any, list[int], int]:
        start, starts, slots, tables, lengths = 0, [0], [], [], []
        for name in order:
            state, count = self.requests[name], counts[name]
            stop = state.computed + count
            while len(state.blocks) * BLOCK < stop:
                state.blocks.append(self.free.pop())
            text = state.prompt_token_ids + state.tokens
            at = range(state.computed, stop)
            self.ids[start : start + count] = torch.tensor(text[state.computed : stop])
            self.positions[start : start + count] = torch.tensor(list(at))
            slots += [state.blocks[p // BLOCK] * BLOCK + p % BLOCK for p in at]
            tables.append(state.blocks)
            lengths.append(stop)
            start += count
            starts.append(start)
        padded = -(-start // self.pad) * self.pad
        metadata = SimpleNamespace(
            query_start_loc=torch.tensor(starts, dtype=torch.int32),
            seq_lens=torch.tensor(lengths, dtype=torch.int32),
            slot_mapping=torch.tensor(slots),
            block_table=tables,
        )
        return metadata, [stop - 1 for stop in starts[1:]], padded


class PreparingRunner(Runner):
    """vLLM's newer runner, which makes its batch anew in each step."""

    persistent = False

    def execute_model(self, scheduler_output: Any, dummy_run: bool = False) -> dict[str, int]:
        order = self._order(scheduler_output)
        self.prepare_inputs(scheduler_output, order)
        return self._run(scheduler_output.num_scheduled_tokens, order)

    def prepare_inputs(self, scheduler_output: Any, order: list[str]) -> Any:
        counts = [scheduler_output.num_scheduled_tokens[name] for name in order]
        return SimpleNamespace(
            req_ids=order,
            query_start_loc_np=np.cumsum([0, *counts]),
            input_ids=self.ids[: sum(counts)],
            num_computed_tokens_np=np.array([self.requests[name].computed for name in order]),
        )


class Mode:
    def __init__(self, name: str) -> None:
        self.name = name

    def is_decode(self) -> bool:
        return self.name == "decode"

    def is_idle(self) -> bool:
        return self.name == "idle"


class SglangRunner(Runner):
    """Calls ``model.forward`` with a ForwardBatch; prefill and decode are batches of their own."""

    server_args = SimpleNamespace(disable_cuda_graph=True, tp_size=1)

    def execute_model(self, scheduler_output: Any) -> dict[str, int]:
        order = self._order(scheduler_output)
        chosen = {}
        for part in (
            [n for n in order if not self._is_prefill(n)],
            list(filter(self._is_prefill, order)),
        ):
            if part:
                chosen |= self._run(scheduler_output.num_scheduled_tokens, part)
        return chosen

    def _run(self, counts: dict[str, int], order: list[str]) -> dict[str, int]:
        prefill = self._is_prefill(order[0])
        metadata, _, padded = self._fill(counts, order)
        number = [counts[name] for name in order]
        batch = SimpleNamespace(
            forward_mode=Mode("extend" if prefill else "decode"),
            rids=order, counts=number, positions=self.positions[:padded],
            extend_seq_lens_cpu=number if prefill else None,
        )  # fmt: skip
        self.keys.metadata = metadata
        batch.input_ids = self.ids[:padded]
        out = self.forward(batch)
        chosen = {}
        for name, row in zip(order, out.next_token_logits, strict=True):
            self.requests[name].computed += counts[name]
            if not self._is_prefill(name):
                chosen[name] = int(row.argmax())
                self.requests[name].tokens.append(chosen[name])
        return chosen

    def forward(self, forward_batch: Any) -> Any:
        return self.model.forward(forward_batch.input_ids, forward_batch.positions, forward_batch)

    def _dummy_run(self, tokens: int) -> None:
        self.keys.metadata = None
        batch = SimpleNamespace(
            forward_mode=Mode("decode"), rids=None, counts=[1] * tokens,
            positions=self.positions[:tokens], extend_seq_lens_cpu=None,
        )  # fmt: skip
        self.model.forward(self.ids[:tokens], batch.positions, batch)


@contextmanager
def forward_context(metadata: Any) -> Iterator[None]:
    module = sys.modules["vllm.forward_context"]
    module.current = SimpleNamespace(attn_metadata=metadata)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.current = None  # type: ignore[attr-defined]


def fake_vllm(monkeypatch: Any) -> None:
    """What the attachment imports of vLLM."""
    package, context = ModuleType("vllm"), ModuleType("vllm.forward_context")
    package.__version__ = "0.0-stub"  # type: ignore[attr-defined]
    context.get_forward_context = lambda: context.current  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.forward_context", context)


def serve(
    runner: Any, prompts: dict[str, list[int]], *, budget: int, tokens: int, every: int
) -> None:
    """Continuous batching: a request arrives each ``every`` steps, at most ``budget`` tokens a step;
    decodes come first, prompts are taken in chunks."""
    waiting, running, step = list(prompts), [], 0
    while waiting or running:
        fresh = []
        if waiting and step % every == 0:
            running.append(waiting.pop(0))
            fresh = [SimpleNamespace(req_id=running[-1], prompt_token_ids=prompts[running[-1]])]
        left, scheduled = budget, {}
        for name in running:
            state = runner.requests.get(name)
            done = 0 if state is None else state.computed
            want = max(1, len(prompts[name]) - done)
            if left:
                scheduled[name] = min(want, left)
                left -= scheduled[name]
        runner.execute_model(
            SimpleNamespace(num_scheduled_tokens=scheduled, scheduled_new_reqs=fresh)
        )
        running = [n for n in running if len(runner.requests[n].tokens) < tokens]
        step += 1
