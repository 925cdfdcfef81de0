"""Rows along the key axis: each is stored when its bits first appear at its position.

Every decode step reads all keys again. What did not change since the last read is found by
comparing with the tensor read then, where that is still unchanged itself, and by row digests
elsewhere; it is counted as carried.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from verify.dumps.capture.positions import PADDING, KeyAxis, RowNames, Step
from verify.dumps.capture.storages import version
from verify.dumps.capture.tensor_words import bits, dtype_name, row_matrix
from verify.dumps.digests import row_digests


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The rows of a key tensor that are new: names, words and digests; and how many are not."""

    names: RowNames
    words: np.ndarray
    digest: np.ndarray
    carried: int


@dataclass(slots=True)
class _LastRead:
    """The tensor of the last read, as long as nobody writes to it."""

    tensor: torch.Tensor
    version: int | None
    generation: int
    start: int
    stop: int

    def usable(self, axes_shape: tuple[int, ...], key_axis: int, keys: KeyAxis) -> bool:
        same = list(self.tensor.shape)
        same[key_axis] = axes_shape[key_axis]
        return (
            self.version is not None
            and self.version == version(self.tensor)
            and self.generation == keys.generation
            and tuple(same) == axes_shape
        )


@dataclass(slots=True)
class _Tap:
    seen: dict[tuple[str | None, int, int], tuple[int, int]] = field(default_factory=dict)
    """(sequence, batch row if padding, position) -> (digest, visit)."""
    last: _LastRead | None = None
    unwritten: set[tuple[str | None, int, int]] = field(default_factory=set)
    """Rows that were read outside of the window of the capture alone."""


class KeyRowSelector:
    """Decides for each key tap which rows of a read are new."""

    def __init__(self) -> None:
        self._taps: dict[tuple[str, int], _Tap] = {}

    def select(
        self,
        tap: tuple[str, int],
        tensor: torch.Tensor,
        axes: str,
        step: Step,
        *,
        written: bool = True,
    ) -> KeyRows:
        """Rows of ``tensor`` (axes with ``b`` and ``s``) that its tap has not seen before.

        Args:
            written: False: they only count; the next read that is written has them as well.
        """
        state = self._taps.setdefault(tap, _Tap())
        key_axis = axes.split().index("s")
        start, stop = step.keys.columns(tensor.shape[key_axis])
        filled = tensor.narrow(key_axis, 0, stop - start)
        changed = _changed(state.last, filled, key_axis, axes, start, step)
        if written and state.unwritten:
            changed[:] = True
        state.last = _LastRead(filled, version(tensor), step.keys.generation, start, stop)
        slots = np.flatnonzero(changed.any(axis=0))
        chosen = filled
        if len(slots) < stop - start:
            index = torch.from_numpy(slots).to(tensor.device)
            chosen = filled.index_select(key_axis, index)
        words = row_matrix(chosen, axes)
        digest = row_digests(words, dtype_name(tensor, tap[0]))
        candidates = changed[:, slots].reshape(-1)
        new, names = _new_rows(state, candidates, digest, start + slots, step, written)
        carried = (stop - start) * step.batch - int(new.sum())
        return KeyRows(names, words[new], digest[new], carried)


def _changed(
    last: _LastRead | None,
    tensor: torch.Tensor,
    key_axis: int,
    axes: str,
    start: int,
    step: Step,
) -> np.ndarray:
    """Which slots [b, s] may hold other bits than at the last read."""
    changed = np.ones((step.batch, tensor.shape[key_axis]), bool)
    if last is None or not last.usable(tuple(tensor.shape), key_axis, step.keys):
        return changed
    first, end = max(start, last.start), min(start + tensor.shape[key_axis], last.stop)
    if end <= first:
        return changed
    now = bits(tensor.narrow(key_axis, first - start, end - first))
    before = bits(last.tensor.narrow(key_axis, first - last.start, end - first))
    if torch.equal(now, before):
        changed[:, first - start : end - start] = False
        return changed
    names = axes.split()
    rows = [names.index("b"), key_axis]
    rest = [index for index in range(len(names)) if index not in rows]
    differs = (now != before).permute(rows + rest).flatten(2).any(dim=2)
    changed[:, first - start : end - start] = differs.cpu().numpy()
    return changed


def _new_rows(
    state: _Tap,
    candidates: np.ndarray,
    digest: np.ndarray,
    columns: np.ndarray,
    step: Step,
    written: bool,
) -> tuple[np.ndarray, RowNames]:
    """Compare candidate rows (b-major) with what was seen at their position before."""
    new = np.zeros(len(candidates), bool)
    sequence, position, visit = [], [], []
    width = len(columns)
    for row in np.flatnonzero(candidates):
        batch_row, column = divmod(int(row), width)
        at = int(step.keys.positions[batch_row, columns[column]])
        name = None if at == PADDING else step.sequences[batch_row]
        key = (name, -1, at) if name is not None else (None, batch_row, int(columns[column]))
        before = state.seen.get(key)
        known = before is not None and before[0] == int(digest[row])
        if known and not (written and key in state.unwritten):
            continue
        count = 0 if before is None else before[1] + (not known)
        state.seen[key] = (int(digest[row]), count)
        (state.unwritten.discard if written else state.unwritten.add)(key)
        new[row] = True
        sequence.append(name)
        position.append(at)
        visit.append(count)
    names = RowNames(
        np.array(sequence, dtype=object),
        np.array(position, dtype=np.int64),
        np.array(visit, dtype=np.int64),
    )
    return new, names
