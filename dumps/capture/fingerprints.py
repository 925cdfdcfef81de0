"""Fingerprints of many small tensors in a few calls, and of large ones at once."""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import torch

from verify.dumps.capture.axes import infer_axes
from verify.dumps.capture.tensor_words import bits, dtype_name
from verify.dumps.digests import mix64, partial_sums
from verify.dumps.summaries import row_sketches, row_statistics
from verify.formats import word_dtype

if TYPE_CHECKING:
    from verify.dumps.capture.lean_plan import StepPlan
    from verify.dumps.capture.positions import Step

Keep = Literal["digest", "statistics", "summary"]
Parts = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]
"""Sums before finalising or digests [rows], sketches [rows, 16], statistics [rows, 7]."""

Kind = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]
"""Shape, strides, dtype and device of a tensor."""

SMALL: Final = 1 << 14
"""Bytes up to which a tensor is copied to be digested with others: a call costs some 10 us, and so
does a copy of this size into fresh memory."""

_memmove = ctypes.memmove
_THREAD_BYTES: Final = 1 << 19  # below this a block is not worth a thread


@dataclass(slots=True)
class _Lane:
    """Staged tensors of one dtype and last axis, one after another."""

    memory: np.ndarray
    address: int
    used: int = 0

    @classmethod
    def empty(cls) -> _Lane:
        memory = np.empty(1 << 17, np.uint8)
        return cls(memory, memory.ctypes.data)

    def grow(self, nbytes: int) -> None:
        """Make room for ``nbytes`` more."""
        memory = np.empty(2 * (self.used + nbytes), np.uint8)
        memory[: self.used] = self.memory[: self.used]
        self.memory, self.address = memory, memory.ctypes.data


class Stage:
    """Copies of small contiguous CPU tensors, by dtype and length of the last axis."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[torch.dtype, int], _Lane] = {}
        self._kinds: dict[Kind, tuple[int, _Lane | None]] = {}

    def put(self, tensor: torch.Tensor, kind: Kind) -> int:
        """Copy ``tensor``, of this ``kind``; the byte where it begins in its lane, or -1 where it
        is not staged."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = self._judge(tensor)
        nbytes, lane = known
        if lane is None or tensor.is_neg():
            return -1
        if lane.used + nbytes > len(lane.memory):
            lane.grow(nbytes)
        at = lane.used
        # Past autograd and the dispatcher: the bits, and nothing else.
        _memmove(lane.address + at, tensor.data_ptr(), nbytes)
        lane.used = at + nbytes
        return at

    def _judge(self, tensor: torch.Tensor) -> tuple[int, _Lane | None]:
        nbytes = tensor.numel() * tensor.element_size()
        dense = tensor.is_contiguous() and tensor.ndim and tensor.device.type == "cpu"
        if nbytes > SMALL or not dense or tensor.is_complex():
            return nbytes, None
        return nbytes, self._lanes.setdefault((tensor.dtype, tensor.shape[-1]), _Lane.empty())

    def lane(self, key: tuple[torch.dtype, int]) -> np.ndarray:
        """uint8: what was staged there."""
        lane = self._lanes[key]
        return lane.memory[: lane.used]

    def clear(self) -> None:
        for lane in self._lanes.values():
            lane.used = 0


class _Rows(NamedTuple):
    """How the rows of a dense tensor on the CPU lie one after another."""

    dtype: str
    words: np.dtype[Any]
    shape: tuple[int, int]
    memory: type[ctypes.Array[ctypes.c_char]]

    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """The row matrix, in the memory of ``tensor``: valid as long as that."""
        memory = self.memory.from_address(tensor.data_ptr())
        return np.frombuffer(memoryview(memory), self.words).reshape(self.shape)


@dataclass(slots=True)
class Fingerprints:
    """The fingerprints of a step."""

    keep: Keep
    _rows: dict[Any, _Rows | None] = field(default_factory=dict)
    _now: dict[int, Parts] = field(default_factory=dict)
    _device: dict[int, Any] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    def take_dense(
        self, index: int, tap: str, tensor: torch.Tensor, kind: Kind, step: Step, axes: str | None
    ) -> bool:
        """Fingerprint a tensor that was not staged, as number ``index`` of the step, if its rows lie
        one after another on the CPU; False if they do not. Calls nothing of torch's dispatcher."""
        key = (kind, axes, step.batch, step.tokens, _kept(step))
        rows = self._rows.get(key, _UNKNOWN)
        if rows is _UNKNOWN:
            rows = self._rows[key] = _dense_rows(tap, tensor, step, axes)
        if rows is None or tensor.is_neg():
            return False
        self._now[index] = self._of(rows.of(tensor), rows.dtype)
        return True

    def take_now(
        self, index: int, tap: str, tensor: torch.Tensor, step: Step, axes: str | None
    ) -> None:
        """Fingerprint any tensor that was not staged, as number ``index`` of the step."""
        row_axes, rest, rows = _row_axes(tensor, step, axes)
        if tensor.is_cuda:
            from verify.gpu import fingerprint

            full = "digest" if self.keep == "digest" else "full"
            self._device[index] = fingerprint(tensor.detach(), row_axes, keep=full)  # type: ignore[arg-type]
            return
        name = dtype_name(tensor, tap)
        plain = bits(tensor).permute([*row_axes, *rest]).reshape(rows, -1)
        self._now[index] = self._of(plain.numpy().view(word_dtype(name)), name)

    def _of(self, words: np.ndarray, name: str) -> Parts:
        """All parts of a row matrix; a large one in as many threads as torch computes with."""
        threads = min(torch.get_num_threads(), words.nbytes // _THREAD_BYTES, len(words))
        if threads < 2:
            return _parts(words, name, self.keep)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(torch.get_num_threads())
        first, *others = np.array_split(words, threads)
        waited = [self._pool.submit(_parts, piece, name, self.keep) for piece in others]
        done = [_parts(first, name, self.keep), *(future.result() for future in waited)]
        joined = [
            None if column[0] is None else np.concatenate(column)
            for column in zip(*done, strict=True)
        ]
        return joined[0], joined[1], joined[2]  # type: ignore[return-value]

    def gather(self, plan: StepPlan, stage: Stage) -> Parts:
        """The parts of all rows of the step, in the order of its records."""
        n = plan.template.n_rows
        found: Parts = (
            np.empty(n, np.uint64),
            np.empty((n, 16), np.float32) if self.keep == "summary" else None,
            np.empty((n, 7)) if self.keep != "digest" else None,
        )
        for lane in plan.lanes:
            words = stage.lane(lane.key).view(word_dtype(lane.dtype))
            for start, stop, length, rows in lane.matrices:
                parts = self._of(words[start:stop].reshape(-1, length), lane.dtype)
                _enter(found, rows, parts)
        for index, parts in self._now.items():
            _enter(found, plan.rows_of(index), parts)
        found[0][:] = mix64(found[0] ^ plan.salts)
        if self._device:  # finished digests
            for index, parts in self._fetched():
                _enter(found, plan.rows_of(index), parts)
        self._now.clear()
        self._device.clear()
        return found

    def _fetched(self) -> list[tuple[int, Parts]]:
        """Fingerprints taken on the device, in one copy a part."""
        prints = list(self._device.values())
        counts = np.cumsum([len(p.digest) for p in prints])[:-1]
        digest = torch.cat([p.digest for p in prints]).cpu().numpy().view(np.uint64)
        columns: list[list[Any]] = [np.split(digest, counts), [None] * len(prints)]
        columns.append([None] * len(prints))
        if self.keep == "summary":
            columns[1] = np.split(torch.cat([p.sketch for p in prints]).cpu().numpy(), counts)
        if self.keep != "digest":
            columns[2] = np.split(torch.cat([p.statistics for p in prints]).cpu().numpy(), counts)
        return list(zip(self._device, zip(*columns, strict=True), strict=True))


# A model has few shapes, and many tensors.
inferred_axes = lru_cache(maxsize=4096)(infer_axes)


def _kept(step: Step) -> int | None:
    return None if step.kept is None else len(step.kept)


def _row_axes(
    tensor: torch.Tensor, step: Step, axes: str | None
) -> tuple[list[int], list[int], int]:
    """The axes that count rows, the others, and the number of rows."""
    axes = axes or inferred_axes(
        tensor.shape, tensor.stride(), step.batch, step.tokens, _kept(step)
    )
    names = axes.split()
    row_axes = [names.index(name) for name in ("b", "t") if name in names]
    rest = [axis for axis in range(tensor.ndim) if axis not in row_axes]
    return row_axes, rest, math.prod(tensor.shape[axis] for axis in row_axes)


_UNKNOWN: Final = _Rows("", np.dtype(np.uint8), (0, 0), ctypes.c_char * 0)


def _dense_rows(tap: str, tensor: torch.Tensor, step: Step, axes: str | None) -> _Rows | None:
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.is_complex():
        return None
    name = dtype_name(tensor, tap)
    row_axes, rest, rows = _row_axes(tensor, step, axes)
    if [*row_axes, *rest] != list(range(tensor.ndim)) or not tensor.numel():
        return None
    nbytes = tensor.numel() * tensor.element_size()
    shape = (rows, tensor.numel() // rows)
    return _Rows(name, word_dtype(name), shape, ctypes.c_char * nbytes)


def _parts(words: np.ndarray, name: str, keep: Keep) -> Parts:
    return (
        partial_sums(words, name),
        row_sketches(words, name) if keep == "summary" else None,
        row_statistics(words, name) if keep != "digest" else None,
    )


def _enter(found: Parts, rows: np.ndarray | slice, parts: Parts) -> None:
    for to, part in zip(found, parts, strict=True):
        if to is not None:
            to[rows] = part
