"""Runs of a small Llama and of its fused form, captured once."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from examples.fused_llama import VLLM, Fault, fused_like, small_llama
from tests.support.llama_pair import run
from verify.dumps.format import Dump, open_dump
from verify.taps.proposal import Proposal
from verify.taps.propose import propose

Runs = Callable[..., tuple[Dump, Dump]]
Proposals = Callable[..., Proposal]

LAYERS = 3


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """(dump of the transformers model, dump of its fused form with these settings)."""
    folder = tmp_path_factory.mktemp("llamas")
    done: dict[tuple[object, ...], Path] = {}

    def captured(key: tuple[object, ...], make: Callable[[], torch.nn.Module], **options) -> Path:
        if key not in done:
            done[key] = run(make(), folder / f"run-{len(done)}", **options)
        return done[key]

    def pair(
        dtype: str = "float32",
        names=VLLM,
        level: str = "full",
        fault: Fault | None = None,
        interleaved: bool = False,
    ) -> tuple[Dump, Dump]:
        model = small_llama(getattr(torch, dtype), LAYERS)
        a = captured((dtype, level), lambda: model, level=level)
        b = captured(
            (dtype, level, names, fault, interleaved),
            lambda: fused_like(model, names, fault=fault, interleaved=interleaved),
            level=level,
        )
        return open_dump(a), open_dump(b)

    return pair


@pytest.fixture(scope="session")
def proposed(runs: Runs) -> Proposals:
    """The proposal between two of these runs, made once."""
    done: dict[tuple[object, ...], Proposal] = {}

    def propose_once(*args: object, **options: object) -> Proposal:
        key = (*args, *sorted(options.items()))
        if key not in done:
            done[key] = propose(*runs(*args, **options))
        return done[key]

    return propose_once
