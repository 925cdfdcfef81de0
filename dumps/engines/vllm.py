"""vLLM's V1 engine: the runner that holds the batch, and the model that it calls.

Two runners are known. ``vllm.v1.worker.gpu_model_runner.GPUModelRunner`` keeps a persistent
``input_batch`` with ``req_ids`` and ``num_reqs``; ``vllm.v1.worker.gpu.model_runner.GPUModelRunner``
makes an ``InputBatch`` a step in ``prepare_inputs``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from verify.dumps.capture.step_arguments import named_arguments
from verify.dumps.engines.batches import (
    EngineInterfaceError,
    FlatBatch,
    need,
    whole_numbers,
    wrap,
)
from verify.dumps.engines.vllm_runner import runner_of, vllm_version
from verify.errors import UsageError

# Calls of the model inside of these are no requests: memory profiling, warm-up, graph capture.
_DUMMY = ("_dummy_run", "profile_run", "capture_model")


class VllmEngine:
    """A worker's model runner.

    Args:
        target: a worker (as in ``LLM.collective_rpc``), a model runner, or the model itself (as in
            ``LLM.apply_model``).

    Raises:
        EngineInterfaceError: none of these.
    """

    name = "vllm"

    def __init__(self, target: Any) -> None:
        self.version = vllm_version()
        self.runner = runner_of(target, self.version)
        model = need(self.runner, "model", "model runner", self.version)
        unwrap = getattr(self.runner, "get_model", None)
        self.model: torch.nn.Module = unwrap() if callable(unwrap) else model
        self._scheduled: Any = None
        self._prepared: Any = None
        self._last_prepared: Any = None
        self._dummy = 0
        self._persistent = hasattr(self.runner, "input_batch")
        if not self._persistent and not hasattr(self.runner, "prepare_inputs"):
            need(self.runner, "input_batch", "model runner", self.version)

    def settings(self) -> dict[str, Any]:
        """Versions and the parts of the configuration that say which kernels run."""
        config = getattr(self.runner, "vllm_config", None)
        found: dict[str, Any] = {"engine": self.name, "engine_version": self.version}
        for part, names in {
            "model_config": ("enforce_eager", "dtype", "quantization", "max_model_len"),
            "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size"),
            "cache_config": ("block_size", "cache_dtype", "enable_prefix_caching"),
            "scheduler_config": ("max_num_batched_tokens", "max_num_seqs"),
            "compilation_config": ("mode", "level", "cudagraph_mode"),
        }.items():
            values = getattr(config, part, None)
            found |= {n: str(getattr(values, n)) for n in names if hasattr(values, n)}
        return found

    def check_eager(self) -> None:
        """
        Raises:
            UsageError: the engine compiles the model, so that hooks are not called.
        """
        config = getattr(getattr(self.runner, "vllm_config", None), "model_config", None)
        if not getattr(config, "enforce_eager", True):
            raise UsageError(
                "hooks do not see inside compiled models and captured graphs",
                where="vllm", found="enforce_eager=False",
                hint="LLM(..., enforce_eager=True) or --enforce-eager",
            )  # fmt: skip

    def watch(self, logits: Callable[[torch.Tensor], None]) -> Callable[[], None]:
        """Follow the runner: what was scheduled, which calls are dummies, what the head computes."""
        undo = [wrap(self.runner, "execute_model", self._executing)]
        undo += [wrap(self.runner, name, self._in_dummy) for name in _DUMMY]
        if not self._persistent:
            undo.append(wrap(self.runner, "prepare_inputs", self._preparing))

        def head(original: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            if isinstance(found, torch.Tensor) and not self._dummy:
                logits(found)
            return found

        undo.append(wrap(self.model, "compute_logits", head))

        def end() -> None:
            for each in undo:
                each()

        return end

    def _executing(self, original: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        self._scheduled = None if self._dummy or kwargs.get("dummy_run") else scheduler_output
        try:
            return original(scheduler_output, *args, **kwargs)
        finally:
            self._scheduled = self._prepared = None

    def _in_dummy(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._dummy += 1
        try:
            return original(*args, **kwargs)
        finally:
            self._dummy -= 1

    def _preparing(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._prepared = self._last_prepared = original(*args, **kwargs)
        return self._prepared

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FlatBatch | None:
        """The batch that the runner prepared, checked against what attention will read."""
        if self._dummy or self._scheduled is None:
            return None
        requests, counts = self._prepared_batch() if self._prepared else self._persistent_batch()
        call = named_arguments(self.model, args, kwargs)
        metadata = _metadata(self.version)
        starts = getattr(metadata, "query_start_loc", None)
        if starts is not None:
            _check_starts(whole_numbers(starts), counts)
        positions = self._positions(call.get("positions"), metadata, counts)
        ids = call.get("input_ids")
        found = FlatBatch(requests, counts, positions, None if ids is None else whole_numbers(ids))
        return found.check("vllm")

    def _persistent_batch(self) -> tuple[list[str], np.ndarray]:
        batch = need(self.runner, "input_batch", "model runner", self.version)
        number = int(need(batch, "num_reqs", "input_batch", self.version))
        requests = list(need(batch, "req_ids", "input_batch", self.version))[:number]
        scheduled = need(self._scheduled, "num_scheduled_tokens", "scheduler_output", self.version)
        if missing := [request for request in requests if request not in scheduled]:
            raise EngineInterfaceError(
                "requests of the batch were not scheduled", where=f"vllm {self.version}",
                found=", ".join(map(str, missing[:5])), allowed=", ".join(list(scheduled)[:10]),
            )  # fmt: skip
        return requests, np.array([scheduled[request] for request in requests], np.int64)

    def _prepared_batch(self) -> tuple[list[str], np.ndarray]:
        requests = list(need(self._prepared, "req_ids", "InputBatch", self.version))
        starts = need(self._prepared, "query_start_loc_np", "InputBatch", self.version)
        return requests, np.diff(whole_numbers(starts)[: len(requests) + 1])

    def _positions(self, given: Any, metadata: Any, counts: np.ndarray) -> np.ndarray:
        """What the model is given; from the lengths where that has several axes (M-RoPE)."""
        if isinstance(given, torch.Tensor) and given.ndim == 1:
            return whole_numbers(given)
        lengths = getattr(metadata, "seq_lens", None)
        if lengths is None:
            raise EngineInterfaceError(
                "the positions of the batch are not known", where=f"vllm {self.version}",
                found=f"positions {type(given).__name__}, no seq_lens in {type(metadata).__name__}",
            )  # fmt: skip
        first = whole_numbers(lengths)[: len(counts)] - counts
        return np.concatenate(
            [start + np.arange(count) for start, count in zip(first, counts, strict=True)]
        )

    def inputs(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Arguments, and what attention is told: ``seq_lens``, ``slot_mapping``, ``block_table``."""
        metadata = _metadata(self.version)
        return {**_attributes(metadata), **named_arguments(self.model, args, kwargs)}

    def watch_steps(
        self, before: Callable[[], None], after: Callable[[FlatBatch | None], None]
    ) -> Callable[[], None]:
        """Around ``execute_model``. Positions are those that the host scheduled."""
        undo = self.watch(lambda logits: None)

        def around(original: Any, *args: Any, **kwargs: Any) -> Any:
            if self._dummy or kwargs.get("dummy_run"):
                return original(*args, **kwargs)
            self._prepared, before_batch = None, args[0] if args else kwargs["scheduler_output"]
            before()
            found = original(*args, **kwargs)
            self._scheduled = before_batch
            after(self._host_batch())
            self._scheduled = None
            return found

        again = wrap(self.runner, "execute_model", around)

        def end() -> None:
            again()
            undo()

        return end

    def _host_batch(self) -> FlatBatch | None:
        """The batch of the step that has just been issued, without a look at the device."""
        if not sum(
            need(self._scheduled, "num_scheduled_tokens", "scheduler_output", self.version).values()
        ):
            return None
        if self._last_prepared is not None:
            self._prepared = self._last_prepared
            requests, counts = self._prepared_batch()
            computed = need(self._prepared, "num_computed_tokens_np", "InputBatch", self.version)
            text = whole_numbers(need(self._prepared, "input_ids", "InputBatch", self.version))
        else:
            requests, counts = self._persistent_batch()
            batch = self.runner.input_batch
            computed = need(batch, "num_computed_tokens_cpu", "input_batch", self.version)
            text = None
        first = whole_numbers(computed)[: len(counts)]
        spans = list(zip(first.tolist(), counts.tolist(), strict=True))
        positions = np.concatenate([np.arange(start, start + count) for start, count in spans])
        if text is None:
            # The device knows tokens that the host has not seen yet.
            buffer = need(self.runner, "input_ids", "model runner", self.version)
            text = whole_numbers(getattr(buffer, "gpu", buffer)[: int(counts.sum())])
        return FlatBatch(requests, counts, positions, text).check("vllm")

    def prompt(self, request: str) -> list[int] | None:
        """From ``requests`` of the persistent runner; the other one keeps prompts on the device."""
        known = getattr(self.runner, "requests", None)
        state = known.get(request) if isinstance(known, dict) else None
        ids = getattr(state, "prompt_token_ids", None)
        if ids is None and self._scheduled is not None:
            new = getattr(self._scheduled, "scheduled_new_reqs", ())
            ids = next((r.prompt_token_ids for r in new if r.req_id == request), None)
        return None if ids is None else [int(token) for token in ids]

    def logits_of(self, output: Any) -> torch.Tensor | None:
        return None


def _metadata(version: str) -> Any:
    """Attention metadata of the call that is under way, of any layer."""
    module = sys.modules.get("vllm.forward_context")
    if module is None:
        return None
    context = need(module, "get_forward_context", "vllm.forward_context", version)()
    found = need(context, "attn_metadata", "ForwardContext", version)
    if isinstance(found, list):
        raise EngineInterfaceError(
            "a batch that was split into micro-batches", where=f"vllm {version}",
            hint="switch off dual batch overlap",
        )  # fmt: skip
    return next(iter(found.values()), None) if isinstance(found, dict) else found


def _check_starts(starts: np.ndarray, counts: np.ndarray) -> None:
    expected = np.concatenate([[0], np.cumsum(counts)])
    if len(starts) < len(expected) or (starts[: len(expected)] != expected).any():
        raise EngineInterfaceError(
            "attention is told of another batch than was scheduled", where="query_start_loc",
            found=starts.tolist(), allowed=expected.tolist(),
        )  # fmt: skip


def _attributes(thing: Any) -> dict[str, Any]:
    return dict(vars(thing)) if hasattr(thing, "__dict__") else {}
