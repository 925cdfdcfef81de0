"""Rows at which an implementation adds something of its own, with all that the operation read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verify.dumps.capture.masks import rule_mask, tensor_mask
from verify.dumps.format.materialise import row_order
from verify.dumps.format.schema import Record
from verify.replay.session import AttentionCall, ModuleCall, Watched
from verify.replay.sink import Taken
from verify.replay.values import Values

ROWS = 12
"""Rows that are kept of one call: half of them those with the largest local part, half spread
evenly over the others, so that a difference in few rows and one in all of them are both seen."""

CALLS = 3
"""Calls that are kept of one tap: the first, and then those with the largest local part."""

COLUMNS = 1536
"""Outputs of a linear layer that are judged of one call."""

Words = NDArray[Any]


@dataclass(slots=True)
class Case:
    """Some rows of one call.

    ``wanted``: what was recorded [rows, row_length]; ``computed``: what the implementation made of
    the same inputs. ``module`` and ``x`` [rows, in], or ``attention``, or ``sources`` (tap -> words
    [rows, length], their dtypes) say what was read.
    """

    record: Record
    step: int
    size: float
    rows: NDArray[np.int64]
    names: list[tuple[str, int]]
    wanted: Words
    computed: Words
    module: torch.nn.Module | None = None
    x: torch.Tensor | None = None
    attention: AttentionRows | None = None
    sources: dict[str, tuple[Words, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Operands of an attention core for some of its rows.

    ``q`` [rows, heads, head_dim]; ``k``, ``v`` [batch, keys, kv_heads, dim]; ``allowed`` [rows,
    keys]; ``batch`` [rows]; all as float64.
    """

    q: NDArray[np.float64]
    k: NDArray[np.float64]
    v: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    batch: NDArray[np.int64]
    attributes: dict[str, Any]


@dataclass(slots=True)
class CaseKeeper:
    """Watches a sink and keeps the cases that are worth judging."""

    values: Values
    watched: Watched | None = None
    cases: dict[str, list[Case]] = field(default_factory=dict)

    def __call__(self, taken: Taken, attributes: dict[str, Any] | None) -> None:
        size = _size(taken)
        kept = self.cases.setdefault(taken.record.tap, [])
        if len(kept) >= CALLS and size <= min(case.size for case in kept[1:]):
            return
        case = self._build(taken, size)
        if len(kept) >= CALLS:
            smallest = min(range(1, len(kept)), key=lambda i: kept[i].size)
            kept[smallest] = case
        else:
            kept.append(case)

    def _build(self, taken: Taken, size: float) -> Case:
        some = _choose(taken)
        record, rows = taken.record, taken.rows[some]
        index = self.values.schedule
        start = index.entries(taken.number).start
        names = [
            (index.sequences[int(index.sequence[start + r])], int(index.position[start + r]))
            for r in rows
        ]
        case = Case(
            record, record.step, size, rows, names, taken.wanted[some], taken.computed[some]
        )
        call = self.watched.call if self.watched is not None else None
        if isinstance(call, ModuleCall) and self._read_a_record(record, call):
            _add_module(case, call, taken.tensor_rows[some])
        elif isinstance(call, AttentionCall) and self._read_its_taps(record):
            case.attention = _attention(call, taken.tensor_rows[some])
        if all(source.kind in ("record", "value") for source in record.inputs):
            case.sources = self._sources(taken, rows)
        return case

    def _read_a_record(self, record: Record, call: ModuleCall) -> bool:
        """Whether the module read one recorded tensor and its own weights. Where operations lie in
        between that were not recorded, what it is given here is not what the run gave it."""
        assert self.watched is not None
        own = {id(t) for t in (*call.module.parameters(), *call.module.buffers())}
        model = self.watched.model
        named = (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        )
        names = {name for name, tensor in named if id(tensor) in own}
        kinds = [s.kind for s in record.inputs if s.kind != "weight" or s.name not in names]
        return kinds.count("record") == 1 and not {"weight", "unknown"} & {*kinds}

    def _read_its_taps(self, record: Record) -> bool:
        """Whether what an attention core read was recorded."""
        base = record.tap.removesuffix("out")
        taps = (f"{base}in.{name}" for name in "qkv")
        return all(self.values.number(record.step, t, record.occurrence) is not None for t in taps)

    def _sources(self, taken: Taken, rows: NDArray[np.int64]) -> dict[str, tuple[Words, str]]:
        """Words that the recorded inputs hold at the same rows: for operations row by row."""
        index = self.values.schedule
        here = index.entries(taken.number)
        found: dict[str, tuple[Words, str]] = {}
        for source in taken.record.inputs:
            if source.kind != "record" or source.seq is None:
                continue
            other = index.dump.record(source.seq, taken.record.rank)
            number = self.values.number(other.step, other.tap, other.occurrence)
            if number is None or other.step != taken.record.step:
                continue
            there = index.entries(number)
            same = there.stop - there.start == here.stop - here.start and all(
                np.array_equal(column[here], column[there])
                for column in (index.sequence, index.position)
            )
            wanted = self.values.wanted(number) if same else None
            if wanted is not None and np.isin(rows, wanted.rows).all():
                words = wanted.words[np.searchsorted(wanted.rows, rows)]
                found[other.tap] = (words, other.dtype)
        return found


def _size(taken: Taken) -> float:
    """How much of the call differs, for choosing between calls: rows count as well as size."""
    return float((taken.wanted != taken.computed).sum()) * float(_apart(taken).max())


def _apart(taken: Taken) -> NDArray[np.float64]:
    from verify.compare.elements import floating_values
    from verify.formats import get_format
    from verify.replay.parts import difference

    fmt = get_format(taken.record.dtype)
    local = difference(floating_values(taken.wanted, fmt), floating_values(taken.computed, fmt))
    return np.asarray(np.abs(local).max(axis=1, initial=0.0), np.float64)


def _choose(taken: Taken) -> NDArray[np.int64]:
    order = np.argsort(-_apart(taken), kind="stable")
    worst, rest = order[: ROWS // 2], np.sort(order[ROWS // 2 :])
    spread = (
        rest[np.unique(np.linspace(0, len(rest) - 1, ROWS // 2).astype(int))] if len(rest) else rest
    )
    return np.sort(np.concatenate([worst, spread]))


def _add_module(case: Case, call: ModuleCall, rows: NDArray[np.int64]) -> None:
    """The rows of the first argument, where they are those of the output."""
    given = call.args[0] if call.args else None
    order, count = row_order(case.record.axes)
    leading = case.record.shape[:count]
    if not isinstance(given, torch.Tensor) or order != list(range(len(order))):
        return
    if list(given.shape[:count]) != leading:
        return
    case.module = call.module
    flat = given.detach().reshape(-1, *given.shape[count:])
    case.x = flat[torch.from_numpy(rows).to(flat.device)].clone()


def _attention(call: AttentionCall, rows: NDArray[np.int64]) -> AttentionRows | None:
    if len(call.operands) != 3 or any(t.ndim != 4 for t in call.operands):
        return None
    q, k, v = call.operands
    batch, _, tokens, _ = q.shape
    keys = k.shape[2]
    allowed = np.ones((1, tokens, keys), bool)
    if call.rule.causal or call.rule.window is not None:
        allowed = allowed & rule_mask(call.rule, tokens, keys)
    if call.mask is not None:
        from_tensor, _ = tensor_mask(call.mask)
        allowed = allowed & from_tensor[..., :keys]
    allowed = np.broadcast_to(allowed, (batch, tokens, keys))
    b, t = np.divmod(rows, tokens)
    used, number = np.unique(b, return_inverse=True)
    chosen = torch.from_numpy(used)
    return AttentionRows(
        q=q[torch.from_numpy(b), :, torch.from_numpy(t)].double().cpu().numpy(),
        k=k[chosen].transpose(1, 2).double().cpu().numpy(),
        v=v[chosen].transpose(1, 2).double().cpu().numpy(),
        allowed=allowed[b, t].copy(),
        batch=number.reshape(-1),
        attributes=dict(call.attributes),
    )
