"""The attention core as it reads: queries, keys, values and mask right before it, and its output.

Who computes it, a Hugging Face attention function or torch's own, is found by the interceptors;
this file records what they hand over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from verify.dumps.capture.axes import free_axes
from verify.dumps.capture.identity import Call, Identity
from verify.dumps.capture.masks import MaskRule, canonical_mask
from verify.dumps.capture.observing import Taps
from verify.dumps.capture.positions import Step
from verify.dumps.capture.selection import port
from verify.dumps.capture.storages import NOTHING, Ancestry, StorageTable, place, version
from verify.dumps.capture.tracing import Tracer
from verify.dumps.format.schema import Input


class Records(Protocol):
    """Who takes the tensors: the recorder of a capture, for one."""

    @property
    def provenance(self) -> Tracer | Identity: ...

    def record(
        self,
        tap: str,
        tensor: torch.Tensor,
        *,
        axes: str | None = None,
        call: Call | None = None,
        attributes: dict[str, Any] | None = None,
        extra: tuple[Ancestry, ...] = (),
    ) -> int: ...


@dataclass(slots=True)
class CoreCall:
    """One call of an attention core that is under way."""

    path: str
    operands: tuple[torch.Tensor, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    mask_inputs: tuple[Ancestry, ...] = ()


@dataclass(frozen=True, slots=True)
class _SharedMask:
    """A mask in canonical form, and the record that holds it."""

    canonical: torch.Tensor
    attributes: dict[str, Any]
    seq: int


class CoreRecorder:
    """Records attention cores at ``<path>.attn.in.q|k|v|mask`` and ``<path>.attn.out``."""

    def __init__(self, recorder: Records, taps: Taps, table: StorageTable) -> None:
        self.current: CoreCall | None = None
        self._recorder = recorder
        self._taps = taps
        self._table = table
        self._masks: dict[tuple[Any, ...], _SharedMask] = {}
        self._counting = False

    def begin_step(self, *, counting: bool = False) -> None:
        """``counting``: the step is outside of the window; masks are not looked at."""
        self._masks.clear()
        self._counting = counting

    @contextmanager
    def call(
        self,
        step: Step,
        path: str,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        rule: MaskRule,
        attributes: dict[str, Any],
    ) -> Iterator[CoreCall]:
        """Record what the core reads; inside, calls further down belong to this one.

        Args:
            qkv: queries [b, h, t, d], keys and values [b, h, s, d].
            mask, rule: see :func:`verify.dumps.capture.masks.canonical_mask`.
            attributes: scalars that it reads; more may be added to ``attributes`` of the call.
        """
        call = CoreCall(path, qkv, dict(attributes))
        for name, tensor, axis in zip("qkv", qkv, "tss", strict=True):
            tap = port(path, f"attn.in.{name}")
            if tap in self._taps:
                self._recorder.record(tap, tensor, axes=_core_axes(tensor, axis, step))
        if port(path, "attn.in.mask") in self._taps and not self._counting:
            call.mask_inputs = self._record_mask(step, path, qkv, mask, rule, call.attributes)
        outer, self.current = self.current, call
        try:
            yield call
        finally:
            self.current = outer

    def finish(self, call: CoreCall, out: torch.Tensor, axes: str) -> None:
        """Record the output of the core."""
        tap = port(call.path, "attn.out")
        if tap in self._taps:
            self._recorder.record(
                tap,
                out,
                axes=axes if out.ndim == len(axes.split()) else None,
                call=Call(call.operands),
                attributes=call.attributes,
                extra=call.mask_inputs,
            )

    def _record_mask(
        self,
        step: Step,
        path: str,
        qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        rule: MaskRule,
        attributes: dict[str, Any],
    ) -> tuple[Ancestry, ...]:
        """Record the canonical mask. A mask that several layers share is computed once a step."""
        query, key, _ = qkv
        queries, keys = query.shape[-2], key.shape[-2]
        if query.ndim != 4 or query.shape[0] != step.batch or queries != step.tokens:
            attributes["mask"] = "not recorded: the queries are not the tokens of the step"
            return ()
        key_of = _mask_key(mask, rule, queries, keys)
        shared = self._masks.get(key_of)
        provenance = self._recorder.provenance
        call_in = Call(() if mask is None else (mask,))
        if shared is None:
            with provenance.paused():
                spans, beyond = canonical_mask(mask, rule, queries, keys, step)
                canonical = torch.from_numpy(spans)
                known = NOTHING if mask is None else provenance.explain(mask, call_in)
                self._table.get(canonical).whole = known
        else:
            canonical, beyond = shared.canonical, shared.attributes
        attributes.update(beyond)
        tap = port(path, "attn.in.mask")
        seq = self._recorder.record(tap, canonical, axes="b t c", call=call_in)
        if shared is None:
            shared = self._masks[key_of] = _SharedMask(canonical, beyond, seq)
            if mask is not None:
                self._table.stand_for(mask, seq)
        return (Ancestry.of(Input(kind="record", seq=shared.seq)),)


def _mask_key(
    mask: torch.Tensor | None, rule: MaskRule, queries: int, keys: int
) -> tuple[Any, ...]:
    if mask is None:
        return (rule, queries, keys)
    return (mask.untyped_storage()._cdata, place(mask), version(mask), rule, queries, keys)


def _core_axes(tensor: torch.Tensor, axis: str, step: Step) -> str | None:
    """``b h t d`` or ``b h s d`` where the tensor belongs to the step, else no token axis."""
    own = tensor.ndim == 4 and tensor.shape[0] == step.batch
    if own and (axis == "s" or tensor.shape[2] == step.tokens):
        return f"b h {axis} d"
    return free_axes(tensor.ndim)
