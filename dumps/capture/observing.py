"""What the hook points of a model report to: a capture, or anything else that watches a run."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from verify.dumps.capture.core import CoreRecorder
    from verify.dumps.capture.hooks import ModuleHooks
    from verify.dumps.capture.positions import Step


class Taps(Protocol):
    """Tap names: those that somebody wants to see."""

    def __contains__(self, tap: str) -> bool: ...


class Observing(Protocol):
    """The part of :class:`verify.dumps.capture.session.Capture` that interceptors need."""

    @property
    def hooks(self) -> ModuleHooks: ...

    @property
    def core(self) -> CoreRecorder: ...

    @property
    def taps(self) -> Taps: ...

    @property
    def current_step(self) -> Step | None: ...

    def record(
        self,
        tap: str,
        tensor: torch.Tensor,
        *,
        axes: str | None = None,
        columns: Listing[int] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> object: ...


class Stepping(Observing, Protocol):
    """An observer that is told where a step begins and ends."""

    @property
    def sequence_names(self) -> list[str]: ...

    def step(
        self,
        positions: Any = None,
        sequences: Listing[str] | None = None,
        *,
        cached: int | None = None,
        kept: Listing[int] | None = None,
    ) -> AbstractContextManager[None]: ...
