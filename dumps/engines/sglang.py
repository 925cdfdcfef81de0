"""SGLang: everything that a batch is stands in the ``ForwardBatch`` that the model is given."""

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
from verify.errors import UsageError

_FIELDS = ("forward_mode", "rids", "positions", "extend_seq_lens_cpu")


class SglangEngine:
    """A model runner of SGLang, or its model.

    The runner calls ``model.forward`` and not the model, which calls no hooks; while this engine is
    watched, the call goes the other way.

    Raises:
        EngineInterfaceError: neither.
    """

    name = "sglang"

    def __init__(self, target: Any) -> None:
        self.version = str(getattr(sys.modules.get("sglang"), "__version__", "unknown version"))
        self.runner = target if not isinstance(target, torch.nn.Module) else None
        if self.runner is not None and hasattr(self.runner, "model_runner"):
            self.runner = self.runner.model_runner
        self.model: torch.nn.Module = (
            target
            if self.runner is None
            else need(self.runner, "model", "model runner", self.version)
        )

    def settings(self) -> dict[str, Any]:
        """Versions and the server arguments that say which kernels run."""
        given = getattr(self.runner, "server_args", None)
        names = (
            "attention_backend", "dtype", "kv_cache_dtype", "quantization", "tp_size", "pp_size",
            "dp_size", "chunked_prefill_size", "disable_cuda_graph", "disable_radix_cache",
            "enable_torch_compile",
        )  # fmt: skip
        found = {name: str(getattr(given, name)) for name in names if hasattr(given, name)}
        return {"engine": self.name, "engine_version": self.version, **found}

    def check_eager(self) -> None:
        """
        Raises:
            UsageError: decode steps are replayed from graphs, so that hooks are not called.
        """
        given = getattr(self.runner, "server_args", None)
        if given is not None and not getattr(given, "disable_cuda_graph", True):
            raise UsageError(
                "hooks do not see inside captured graphs", where="sglang",
                found="disable_cuda_graph=False", hint="--disable-cuda-graph",
            )  # fmt: skip

    def watch(self, logits: Callable[[torch.Tensor], None]) -> Callable[[], None]:
        """Let ``model.forward`` call the hooks of the model."""
        model = self.model
        original = model.forward
        held = vars(model).get("forward")
        inside = False

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return original(*args, **kwargs)
            inside = True
            try:
                return model(*args, **kwargs)
            finally:
                inside = False

        # What else is asked of it, its signature above all, is that of the original.
        forward.__wrapped__ = original  # type: ignore[attr-defined]
        object.__setattr__(model, "forward", forward)

        def undo() -> None:
            if held is None:
                object.__delattr__(model, "forward")
            else:
                object.__setattr__(model, "forward", held)

        return undo

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FlatBatch | None:
        """The batch as the ForwardBatch says it."""
        call = named_arguments(self.model, args, kwargs)
        given = call.get("forward_batch") or next(
            (value for value in call.values() if hasattr(value, "forward_mode")), None
        )
        if given is None:
            raise EngineInterfaceError(
                "the model was called without a ForwardBatch", where=f"sglang {self.version}",
                found=", ".join(call), allowed="input_ids, positions, forward_batch",
            )  # fmt: skip
        return self._read(given, call.get("input_ids"))

    def _read(self, given: Any, ids: Any) -> FlatBatch | None:
        mode, rids, positions, extended = (
            need(given, name, "ForwardBatch", self.version) for name in _FIELDS
        )
        if rids is None or _says(mode, "is_idle") or _capturing():
            return None
        if _says(mode, "is_target_verify") or _says(mode, "is_draft_extend_v2"):
            raise EngineInterfaceError(
                "speculative decoding is not supported", where=f"sglang {self.version}",
                found=str(mode),
            )  # fmt: skip
        decoding = _says(mode, "is_decode")
        counts = np.ones(len(rids), np.int64) if decoding else whole_numbers(extended)
        return FlatBatch(
            [str(rid) for rid in rids],
            counts[: len(rids)],
            whole_numbers(positions),
            None if ids is None else whole_numbers(ids),
        ).check("sglang")

    def inputs(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Arguments, and fields of the ForwardBatch: ``seq_lens``, ``out_cache_loc``, ..."""
        call = named_arguments(self.model, args, kwargs)
        batch = call.get("forward_batch")
        return {**(vars(batch) if hasattr(batch, "__dict__") else {}), **call}

    def watch_steps(
        self, before: Callable[[], None], after: Callable[[FlatBatch | None], None]
    ) -> Callable[[], None]:
        """Around ``forward`` of the runner, which calls the model or replays a graph."""
        if self.runner is None:
            raise EngineInterfaceError(
                "graphs are replayed by the model runner, not by the model", where="sglang",
                found=type(self.model).__name__, allowed="the ModelRunner",
            )  # fmt: skip
        undo = self.watch(lambda logits: None)

        def around(original: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            # What it says is read before: replays write to some of it.
            batch = self._read(forward_batch, getattr(forward_batch, "input_ids", None))
            before()
            found = original(forward_batch, *args, **kwargs)
            after(batch)
            return found

        again = wrap(self.runner, "forward", around)

        def end() -> None:
            again()
            undo()

        return end

    def prompt(self, request: str) -> list[int] | None:
        """A ForwardBatch does not hold prompts: sequences are named by the ids of requests."""
        return None

    def logits_of(self, output: Any) -> torch.Tensor | None:
        found = getattr(output, "next_token_logits", None)
        return found if isinstance(found, torch.Tensor) else None


def _says(mode: Any, question: str) -> bool:
    ask = getattr(mode, question, None)
    return bool(ask()) if callable(ask) else False


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
