"""Faults of attention cores: scores, masks, values, and how parts are merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from verify.selftest.fault import BROKEN, Fault, Place
from verify.selftest.inject import Core, changed_core
from verify.selftest.sizes import Size, resized

OUT = ("self_attn.attn.out",)
_PAGE = 16


def attend(
    core: Core,
    *,
    scale: float | None = None,
    keys: Any = None,
    cap: float = 0.0,
    sink: bool = False,
    k: Any = None,
    v: Any = None,
) -> Any:
    """The core again, in float32, with something changed; [b, t, h, d].

    Args:
        keys: bool [t, s], keys that a query may see; None: all up to its own position.
        cap: scores become cap * tanh(score / cap).
        sink: one more key of score 0 and value 0.
        k, v: [b, h, s, d] in place of the core's own, repeated for the query heads.
    """
    import torch

    k = repeated(core.k, core) if k is None else k
    v = repeated(core.v, core) if v is None else v
    scores = core.q.float() @ k.float().transpose(-1, -2)
    scores = scores * (core.scale if scale is None else scale)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    allowed = seen(core) if keys is None else keys
    scores = scores.masked_fill(~allowed, -math.inf)
    top = scores.amax(dim=-1, keepdim=True)
    if sink:
        top = top.clamp(min=0.0)
    weights = torch.exp(scores - top)
    total = weights.sum(dim=-1, keepdim=True)
    if sink:
        total = total + torch.exp(-top)
    return (weights @ v.float() / total).transpose(1, 2)


def repeated(keys: Any, core: Core) -> Any:
    """Keys or values [b, g, s, d] for each query head, [b, h, s, d]."""
    return keys.repeat_interleave(core.q.shape[1] // keys.shape[1], dim=1)


def seen(core: Core) -> Any:
    """bool [t, s]: keys up to the query's own position."""
    import torch

    position, key = _positions(core)
    return torch.as_tensor(key <= position)


def _positions(core: Core) -> tuple[Any, Any]:
    import torch

    queries, keys = core.q.shape[2], core.k.shape[2]
    return torch.arange(keys - queries, keys)[:, None], torch.arange(keys)[None, :]


def _scale(core: Core, place: Place) -> Any:
    return attend(core, scale=core.scale / math.sqrt(core.q.shape[1]))


def _cap(core: Core, place: Place) -> Any:
    return attend(core, cap=1.0)


def _sink(core: Core, place: Place) -> Any:
    return attend(core, sink=True)


def _gain(core: Core, place: Place) -> Any:
    return core.out * 1.414


def _k_scale_twice(core: Core, place: Place) -> Any:
    return attend(core, scale=core.scale * 0.06)


def _v_scale_ignored(core: Core, place: Place) -> Any:
    return core.out / 0.06


def _v_as_fnuz(core: Core, place: Place) -> Any:
    return core.out * 0.5


def _merge_base_two(core: Core, place: Place) -> Any:
    """Keys in two parts, whose log-sum-exps are merged as if they were of base 2."""
    import torch

    keys = core.k.shape[2]
    cut = max(1, keys // 3)
    allowed = seen(core)
    halves = [allowed.clone(), allowed.clone()]
    halves[0][:, cut:] = False
    halves[1][:, :cut] = False
    scores = core.q.float() @ repeated(core.k, core).float().transpose(-1, -2) * core.scale
    out, weight = [], []
    for half in halves:
        lse = scores.masked_fill(~half, -math.inf).logsumexp(dim=-1)  # [b, h, t]
        out.append(torch.nan_to_num(attend(core, keys=half)))
        weight.append(torch.exp2(lse).transpose(1, 2)[..., None])  # right would be exp
    return (out[0] * weight[0] + out[1] * weight[1]) / (weight[0] + weight[1])


def _newest_key_missing(core: Core, place: Place) -> Any:
    position, key = _positions(core)
    return attend(core, keys=key < position.clamp(min=1))


def _window(core: Core, place: Place) -> Any:
    """A window where there is none: the oldest keys are lost from some position on."""
    position, key = _positions(core)
    return attend(core, keys=(key <= position) & (key > position - 8))


def _top_left(core: Core, place: Place) -> Any:
    """The causal mask anchored at the first key: only chunks and decode steps go wrong."""
    import torch

    queries, keys = core.q.shape[2], core.k.shape[2]
    if queries == keys:
        return core.out
    return attend(core, keys=torch.arange(keys)[None, :] <= torch.arange(queries)[:, None])


def _heads_tiled(core: Core, place: Place) -> Any:
    """Query head h reads key head h mod g in place of h // (h / g)."""
    group = core.q.shape[1] // core.k.shape[1]
    tiled = (1, group, 1, 1)
    return attend(core, k=core.k.repeat(*tiled), v=core.v.repeat(*tiled))


def _strides_ignored(core: Core, place: Place) -> Any:
    """V [b, g, s, d] read as if it lay in memory as [b, s, g, d]."""
    b, g, s, d = core.v.shape
    v = core.v.contiguous().reshape(b, s, g, d).transpose(1, 2)
    return attend(core, v=repeated(v, core))


def _extra_page(core: Core, place: Place) -> Any:
    """One page of stale keys too many where the length fills its pages exactly."""
    import torch

    position, _ = _positions(core)
    full = (position + 1) % _PAGE == 0
    k, v = repeated(core.k, core), repeated(core.v, core)
    stale = full.expand(-1, min(_PAGE, k.shape[2])) & seen(core)[:, :_PAGE]
    return attend(
        core,
        keys=torch.cat([seen(core), stale], dim=1),
        k=torch.cat([k, k[:, :, :_PAGE]], dim=2),
        v=torch.cat([v, -v[:, :, :_PAGE]], dim=2),
    )


def _stale_row(core: Core, place: Place) -> Any:
    """The last row is not written and holds what was in the buffer before."""
    wrong = core.out.clone()
    wrong[:, -1] = core.out[:, -1].flip(-1) * 0.5
    return wrong


def _masked_row(core: Core, place: Place) -> Any:
    """A row that may see no key: zero divided by zero."""
    wrong = core.out.clone()
    wrong[:, -1] = math.nan
    return wrong


def _only_heads(change: Callable[[Core, Place], Any]) -> Callable[[Core, Place], Any]:
    """The change in the query heads of one group."""

    def narrowed(core: Core, place: Place) -> Any:
        group = core.q.shape[1] // core.k.shape[1]
        heads = slice(place.head * group, (place.head + 1) * group)
        wrong = core.out.clone()
        wrong[:, :, heads] = change(core, place)[:, :, heads].to(core.out.dtype)
        return wrong

    return narrowed


def _planted(change: Callable[[Core, Place], Any]) -> Any:
    @contextmanager
    def plant(model: Any, place: Place) -> Iterator[None]:
        def sized(core: Core) -> Any:
            return resized(core.out, change(core, place), place.size)

        with changed_core(model, {place.layer}, sized):
            yield

    return plant


def _fault(
    kind: str, name: str, change: Callable[[Core, Place], Any], heads: bool = False, **more: Any
) -> Fault:
    narrowed = _only_heads(change) if heads else change
    return Fault(kind, name, _planted(narrowed), OUT, heads=heads, **more)


CORE_FAULTS = (
    _fault("K04", "score scale", _scale),
    _fault("K04", "softcap", _cap),
    _fault("K04", "sink", _sink),
    _fault("K04", "value gain in one group of heads", _gain, heads=True),
    _fault("K05", "key scale applied twice", _k_scale_twice),
    _fault("K05", "value scale ignored", _v_scale_ignored),
    _fault("K06", "values read as FNUZ", _v_as_fnuz, heads=True),
    _fault("K08", "merge with base-2 sums", _merge_base_two),
    _fault("K09", "newest key missing in one group of heads", _newest_key_missing, heads=True),
    _fault("K09", "window", _window),
    _fault("K09", "causal mask anchored top-left", _top_left),
    _fault("K12", "key heads tiled", _heads_tiled),
    _fault("K12", "strides of V ignored", _strides_ignored),
    _fault("K14", "fully masked row", _masked_row, verdicts=BROKEN, sizes=(Size.GROSS,)),
    _fault("K15", "one page too many", _extra_page),
    _fault("K15", "row not written", _stale_row),
)
