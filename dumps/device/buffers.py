"""The ring of steps in device memory, and the operator that taps write through.

``verify::tap`` takes tensors and the ring that it writes into, and nothing else happens there: it
is an ordinary operator that mutates one argument, so that it can be captured in a CUDA graph and
compiled without a graph break. The ring is marked as static, which lets CUDA graphs of
``torch.compile(mode="reduce-overhead")`` stay on.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from verify.dumps import digests, summaries
from verify.dumps.capture.fingerprints import inferred_axes
from verify.dumps.capture.tensor_words import dtype_name, row_matrix
from verify.dumps.device.layout import Keep, Observed, Region, StepLayout
from verify.errors import ArgumentError

_LEAD_WORDS = 8  # before the slots: the step counter, the rest is reserved
_TABLE_WORDS = 1 << 17  # job tables of captured graphs, 1 MiB of pinned memory


class TapBuffers:
    """A ring of ``slots`` steps of ``step_bytes`` bytes, and the regions inside a step.

    Args:
        taps: names, by number.
        keep: what is kept of each tap, by number.
        slots: steps that may run before one must be drained; older ones are overwritten and lost.

    ``missed``: taps that had no room, with how often that was seen. In a captured graph that counts
    once, and each replay leaves the tap out.
    """

    def __init__(
        self,
        taps: Sequence[str],
        keep: Sequence[Keep],
        device: torch.device | str,
        *,
        slots: int = 8,
        step_bytes: int = 8 << 20,
    ) -> None:
        if slots < 1 or step_bytes < 4096 or step_bytes % 16:
            raise ArgumentError(
                "a ring needs a slot and a multiple of 16 bytes a step",
                found=f"{slots} slots of {step_bytes} bytes",
            )
        self.taps, self.keep = list(taps), list(keep)
        self.device = torch.device(device)
        self.slots = slots
        self.layout = StepLayout(step_bytes)
        self.missed: Counter[str] = Counter()
        self.ring = torch.zeros(
            _LEAD_WORDS + slots * step_bytes // 8, dtype=torch.int64, device=self.device
        )
        torch._dynamo.mark_static_address(self.ring)
        self.owner = _enter(self)
        self._occurrences: Counter[int] = Counter()
        self._table_used = 0
        if self.device.type == "cuda":
            self._arena = torch.zeros(_TABLE_WORDS, dtype=torch.int64, pin_memory=True)

    def slot_words(self) -> Tensor:
        """int64 [slots, words]: the slots, up to the part that is in use."""
        return self.ring[_LEAD_WORDS:].view(self.slots, -1)[:, : self.layout.used // 8]

    def counter(self) -> Tensor:
        """int64 [1]: steps that have ended."""
        return self.ring[:1]

    def take(
        self,
        tensors: Sequence[Tensor],
        taps: Sequence[int],
        ring: Tensor,
        batch: int,
        tokens: int,
        last: bool,
    ) -> None:
        """Write the fingerprints of ``tensors`` into the step of ``ring``; ``last``: and end it."""
        placed = []
        for tensor, tap in zip(tensors, taps, strict=True):
            region = self._place(tensor, tap, batch, tokens)
            if region is not None:
                placed.append((tensor, region))
        if self.device.type == "cuda":
            self._launch(placed, ring, last)
        else:
            self._compute(placed, ring, last)
        if last:
            self._occurrences.clear()

    def _place(self, tensor: Tensor, tap: int, batch: int, tokens: int) -> Region | None:
        occurrence = self._occurrences[tap]
        self._occurrences[tap] += 1
        axes = inferred_axes(tensor.shape, tensor.stride(), batch, tokens)
        names = axes.split()
        observed = Observed(
            tap=tap,
            occurrence=occurrence,
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            storage_offset=int(tensor.storage_offset()),
            dtype=dtype_name(tensor, self.taps[tap]),
            axes=axes,
            row_axes=tuple(names.index(name) for name in ("b", "t") if name in names),
            keep=self.keep[tap],
        )
        region = self.layout.place(observed, tensor.numel() * tensor.element_size())
        if region is None:
            self.missed[self.taps[tap]] += 1
        return region

    def _compute(self, placed: list[tuple[Tensor, Region]], ring: Tensor, last: bool) -> None:
        """The same on the CPU, with the numpy forms."""
        words = ring.numpy()
        count = int(words[0])
        at = _LEAD_WORDS + count % self.slots * (self.layout.step_bytes // 8)
        step = words[at : at + self.layout.step_bytes // 8]
        for tensor, region in placed:
            _write(step, tensor, region, count)
        if last:
            words[0] += 1

    def _launch(self, placed: list[tuple[Tensor, Region]], ring: Tensor, last: bool) -> None:
        from verify.dumps.device.launching import launch_regions
        from verify.gpu.fingerprint.jobs import Ring, advance

        address = ring.data_ptr()
        base = address + 8 * _LEAD_WORDS
        to = Ring(base, address, self.slots, self.layout.step_bytes)
        launch_regions(placed, to, self)
        if last:
            advance(self.device, address)

    def table(self, words: np.ndarray) -> Tensor:
        """A copy of ``words`` that a launch on the current stream may read.

        While a graph is captured the copy lies in pinned memory, which the device reads at every
        replay, and stays there.
        """
        if not torch.cuda.is_current_stream_capturing():
            pinned = torch.from_numpy(words).pin_memory()
            return pinned.to(self.device, non_blocking=True)
        stop = self._table_used + len(words)
        if stop > len(self._arena):
            raise ArgumentError(
                "captured graphs hold more taps than the job table has room for",
                found=f"{stop} words",
                allowed=len(self._arena),
                hint="capture fewer graphs, or fewer taps",
            )
        part = self._arena[self._table_used : stop]
        part.copy_(torch.from_numpy(words))
        self._table_used = stop
        return part


def _write(step: np.ndarray, tensor: Tensor, region: Region, count: int) -> None:
    seen = region.observed
    matrix = row_matrix(tensor, seen.axes)
    header = region.header // 8
    step[header : header + 2] = count + 1, region.number
    rows = seen.rows
    at = region.digests // 8
    step[at : at + rows] = digests.row_digests(matrix, seen.dtype).view(np.int64)
    if seen.keep == "summary":
        at = region.sketches // 8
        sketch = summaries.row_sketches(matrix, seen.dtype)
        step[at : at + 8 * rows] = sketch.reshape(-1).view(np.int64)
        at = region.statistics // 8
        statistics = summaries.row_statistics(matrix, seen.dtype)
        step[at : at + 7 * rows] = statistics.reshape(-1).view(np.int64)
    elif seen.keep == "words":
        raw = matrix.reshape(-1).view(np.uint8)
        step.view(np.uint8)[region.words : region.words + len(raw)] = raw


_owners: weakref.WeakValueDictionary[int, TapBuffers] = weakref.WeakValueDictionary()
_next_owner = [0]


def _enter(buffers: TapBuffers) -> int:
    """A number by which the operator finds its buffers; operators take no objects."""
    _next_owner[0] += 1
    _owners[_next_owner[0]] = buffers
    return _next_owner[0]


@torch.library.custom_op("verify::tap", mutates_args=("ring",))
def tap(
    tensors: list[Tensor],
    taps: list[int],
    ring: Tensor,
    owner: int,
    batch: int,
    tokens: int,
    last: bool,
) -> None:
    """Write what is kept of ``tensors`` into the ring of :class:`TapBuffers` number ``owner``."""
    buffers = _owners.get(owner)
    if buffers is None:
        raise ArgumentError(
            "a tap outlived its buffers",
            where="verify::tap",
            hint="keep the DeviceTaps object as long as its graphs and compiled models run",
        )
    # A compiler may hand over a copy of the ring and copy it back: what is given is what counts.
    buffers.take([bits_free(tensor) for tensor in tensors], taps, ring, batch, tokens, last)


@tap.register_fake
def _(
    tensors: list[Tensor],
    taps: list[int],
    ring: Tensor,
    owner: int,
    batch: int,
    tokens: int,
    last: bool,
) -> None:
    return None


def bits_free(tensor: Tensor) -> Tensor:
    """The tensor without lazy conjugation or negation, which raw words do not show."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor
