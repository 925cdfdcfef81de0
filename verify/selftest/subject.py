"""The model on trial: configurations of it, recorded and replayed as a user would."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from verify.bisect.result import BisectResult
from verify.replay.steps import Implementation

TOY_PROMPT = "Why is the sky blue? Because"
"""Of bytes: the toy has a token for each."""
PROMPT = (
    "Why is the sky blue? Because the light of the sun is scattered by the air, and the more so"
)
TOY_LAYERS = 6
TOKENS = 3
LAYERS = "model.layers"
"""Path of the decoder layers in models of the Llama family."""

Planted = Callable[[Any], AbstractContextManager[Any]]


def nothing_planted(model: Any) -> AbstractContextManager[Any]:
    """No fault."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Setup:
    """How one side runs."""

    dtype: str = "bf16"
    attn: str = "sdpa"
    chunk: int | None = None
    batch: int | None = None
    threads: int = 1
    kv_cache: str = "native"

    def describe(self) -> str:
        """What is not as usual."""
        usual = Setup(dtype=self.dtype)
        names = [n for n in ("attn", "chunk", "batch", "threads", "kv_cache")]
        changed = [
            f"{n} {getattr(self, n)}" for n in names if getattr(self, n) != getattr(usual, n)
        ]
        return ", ".join([self.dtype, *changed])


@dataclass
class Subject:
    """A model by name (``toy``, or as for ``verify capture --model``), loaded once a setup.

    Args:
        folder: runs are written here; those of B are removed after each trial.
    """

    name: str
    folder: Path
    tokens: int = TOKENS
    prompt: str = ""
    """Empty: one that is longer than a page of 16 tokens."""
    runs: dict[Setup, Path] = field(default_factory=dict)

    def config(self) -> Any:
        """The model's configuration."""
        return _load(self.name, "fp32", "sdpa").model.config

    def model(self, setup: Setup) -> Any:
        """The module that computes under this setup."""
        return _load(self.name, setup.dtype, setup.attn).model

    def base(self, setup: Setup) -> Path:
        """The run without a fault, recorded once."""
        if setup not in self.runs:
            path = self.folder / f"a-{len(self.runs)}"
            self._record(setup, path, None, nothing_planted)
            self.runs[setup] = path
        return self.runs[setup]

    def bisect(
        self, a: Setup, b: Setup, planted: Planted = nothing_planted, *, forced: bool = True
    ) -> BisectResult:
        """Record B on A's tokens, replay both ways, bisect: as ``verify bisect --replay``.

        Args:
            planted: what B has and A has not.
            forced: B is given A's tokens.
        """
        with self.recorded(a, b, planted, forced=forced) as (first, second):
            return self._judge(first, second, a, b, planted)

    @contextmanager
    def recorded(
        self, a: Setup, b: Setup, planted: Planted = nothing_planted, *, forced: bool = True
    ) -> Iterator[tuple[Path, Path]]:
        """Both runs on disk; B's is removed afterwards. Arguments as for :meth:`bisect`."""
        first, second = self.base(a), self.folder / "b"
        shutil.rmtree(second, ignore_errors=True)
        self._record(b, second, first if forced else None, planted)
        try:
            yield first, second
        finally:
            shutil.rmtree(second, ignore_errors=True)

    def _judge(
        self, first: Path, second: Path, a: Setup, b: Setup, planted: Planted
    ) -> BisectResult:
        from verify.bisect.run import bisect
        from verify.dumps.format import open_dump
        from verify.replay.checker import checker
        from verify.replay.run import Models, replay

        dumps = open_dump(first), open_dump(second)
        sides = Models(self._implementation(a, nothing_planted), self._implementation(b, planted))
        replayed = replay(*dumps, sides)
        return bisect(*dumps, checkers=[checker(replayed, *dumps)])

    def _implementation(self, setup: Setup, planted: Planted) -> Implementation:
        model = self.model(setup)
        return Implementation(
            model,
            kv_cache=setup.kv_cache,
            around=lambda: planted(model),
            threads=setup.threads,
        )

    def _record(self, setup: Setup, path: Path, tape: Path | None, planted: Planted) -> None:
        import torch

        from verify.dumps.hf.record import Request, record_generation

        loaded = _load(self.name, setup.dtype, setup.attn)
        request = Request(
            model=self.name,
            prompts=(self.prompt or (TOY_PROMPT if self.name == "toy" else PROMPT),),
            tokens=self.tokens,
            dtype=setup.dtype,
            attn=setup.attn,
            prefill_chunk=setup.chunk,
            batch=setup.batch,
            kv_cache=setup.kv_cache,
            threads=setup.threads,
            tape=tape,
            raw=True,
        )
        threads = torch.get_num_threads()
        try:
            with planted(loaded.model):
                record_generation(request, path, loaded=loaded)
        finally:
            torch.set_num_threads(threads)


@cache
def _load(name: str, dtype: str, attn: str) -> Any:
    from verify.dumps.hf.load import LoadedModel, load_model

    if name != "toy":
        return load_model(name, dtype=dtype, attn=attn)
    import torch

    from verify.selftest.toy import toy_llama, toy_tokenizer

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    model = toy_llama(attn=attn, num_hidden_layers=TOY_LAYERS).to(kinds[dtype])
    return LoadedModel("toy", model, toy_tokenizer(), {})
