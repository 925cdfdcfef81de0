"""What is no fault of an operation: choices behind the logits, captures gone wrong, races."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verify.bisect.result import Verdict
from verify.selftest.fault import Fault, Place
from verify.selftest.inject import Core, changed_choice, changed_core
from verify.selftest.sizes import Size
from verify.selftest.subject import LAYERS

_NOT_A_FAULT = frozenset({Verdict.NOT_COMPARABLE, Verdict.UNRESOLVED})
_OPEN = frozenset({Verdict.NON_REPEATABLE, Verdict.UNRESOLVED})
_GROSS = (Size.GROSS,)


@contextmanager
def _runner_up(model: Any, place: Place) -> Iterator[None]:
    """The sampler takes the second best token."""
    with changed_choice(lambda logits: logits.topk(2, dim=-1).indices[:, 1:]):
        yield


@contextmanager
def _recorded_instead(wanted: str, given: str) -> Iterator[None]:
    """The tap ``wanted`` is recorded with what ``given`` held; the model goes on undisturbed."""
    from verify.dumps.capture.recorder import Recorder

    sound = Recorder.record
    seen: dict[str, Any] = {}

    def record(self: Any, tap: str, tensor: Any, **named: Any) -> int:
        if tap == given:
            seen[tap] = tensor.detach().clone()
        if tap == wanted and given in seen and seen[given].shape == tensor.shape:
            tensor = seen[given].clone()
        return sound(self, tap, tensor, **named)

    Recorder.record = record  # type: ignore[method-assign]
    try:
        yield
    finally:
        Recorder.record = sound  # type: ignore[method-assign]


@contextmanager
def _before_norm(model: Any, place: Place) -> Iterator[None]:
    at = f"{LAYERS}.{place.layer}.post_attention_layernorm"
    with _recorded_instead(f"{at}.out", f"{at}.in.0"):
        yield


@contextmanager
def _without_residual(model: Any, place: Place) -> Iterator[None]:
    at = f"{LAYERS}.{place.layer}"
    with _recorded_instead(f"{at}.out", f"{at}.mlp.down_proj.out"):
        yield


_calls = itertools.count()
"""Calls of racing cores in this process: what a race depends on is not the input."""

_EVERY = 5


@contextmanager
def _race(model: Any, place: Place) -> Iterator[None]:
    """Now and then a part of the sum is lost."""

    def racing(core: Core) -> Any:
        return core.out * 0.5 if next(_calls) % _EVERY == 0 else core.out

    with changed_core(model, {place.layer}, racing):
        yield


OTHER_FAULTS = (
    Fault("K02", "sampler takes the runner-up", _runner_up, ("*tokens.out",),
          frozenset({Verdict.POST_LOGITS}), sizes=_GROSS, on_top=False),
    Fault("K19", "a core that loses a part now and then", _race, ("self_attn.attn.out",), _OPEN,
          sizes=_GROSS, on_top=False),
    Fault("K23", "norm recorded before it", _before_norm, ("post_attention_layernorm.out",),
          _NOT_A_FAULT, sizes=_GROSS),
    Fault("K23", "layer recorded without residual", _without_residual, ("out",), _NOT_A_FAULT,
          sizes=_GROSS),
)  # fmt: skip
