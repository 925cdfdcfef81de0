"""Attention cores of both sides against FP64, within the roundings that each declares."""

from __future__ import annotations

import numpy as np

from verify.compare.elements import floating_values
from verify.dumps.format.schema import Record
from verify.formats import Format
from verify.reference.certificates.result import Outcome
from verify.replay.attention import DEVIATIONS, judge_rows, storage
from verify.replay.cases import Case
from verify.replay.judgement import Judgement, Sides, Values, relative_error


def judge_core(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
    """Each side's core against FP64 within the roundings that its implementation declares."""
    core = case.attention
    assert core is not None
    attributes = core.attributes
    if any(attributes.get(name) for name in ("bias", "softcap", "dropout", "mask_heads")):
        return None
    rows, heads, dim = core.q.shape
    kv_heads, value_dim = core.v.shape[2:]
    a, b = (floating_values(words, fmt) for words in sides.of(case))
    if a.shape[1] != heads * value_dim or heads % kv_heads:
        return None
    scale = attributes.get("scale")
    scale = float(scale) if isinstance(scale, int | float) else dim**-0.5
    stored = [storage(name, fmt) for name in (sides.implementation_a, sides.implementation_b)]
    group = heads // kv_heads
    outputs = [_by_head(side, case.record, heads, value_dim) for side in (a, b)]
    exact = np.zeros((rows, heads, value_dim))
    reach = np.zeros((rows, heads))
    limits = np.zeros((2, 2, rows, heads, value_dim))
    for row in range(rows):
        allowed = core.allowed[row]
        if not allowed.any():
            continue
        entry = core.batch[row]
        for head in range(kv_heads):
            some = slice(head * group, (head + 1) * group)
            keys, values = core.k[entry, allowed, head], core.v[entry, allowed, head]
            every = np.ones((group, len(keys)), bool)
            # Masked keys count: infinity and a mask that is subtracted from it stay infinite.
            reach[row, some] = np.abs(core.q[row, some] @ core.k[entry, :, head].T).max(axis=1)
            for side in range(2):
                found = judge_rows(core.q[row, some], keys, values, every, scale, stored[side])
                exact[row, some] = found.exact
                limits[side, 0, row, some] = found.bound
                limits[side, 1, row, some] = np.minimum(found.bound, DEVIATIONS * found.deviation)
    over = np.stack([reach > side.largest for side in stored])
    limits[np.broadcast_to(over[:, None, ..., None], limits.shape)] = np.inf
    said = [
        f"products of q and k reach {reach.max():.3g}, beyond {side.largest:.6g}, the largest number "
        f"in which {name} stores them"
        for number, (name, side) in enumerate(zip("AB", stored, strict=True))
        if over[number].any()
    ]
    return _attention_outcome(outputs, exact, limits + fmt.min_subnormal, (a, b), said)


def _by_head(values: Values, record: Record, heads: int, dim: int) -> Values:
    """[rows, heads, dim]: rows hold their other axes in the order of the axes."""
    return values.reshape(len(values), heads, dim)


def _attention_outcome(
    outputs: list[Values],
    exact: Values,
    limits: Values,
    sides: tuple[Values, Values],
    out_of_range: list[str],
) -> Judgement:
    a, b = sides
    used: float = 0.0
    broken: list[str] = []
    strange = list(out_of_range)
    worst = (0, 0)
    for side, name in enumerate("AB"):
        with np.errstate(invalid="ignore"):
            error = np.abs(outputs[side] - exact)
        error = np.where(np.isfinite(error), error, np.inf)
        free = np.isinf(limits[side, 0])
        error = np.where(free, 0.0, error)
        share = error / limits[side, 0]
        place = np.unravel_index(int(np.argmax(share)), share.shape)
        if share[place] > used:
            used = float(share[place])
            worst = (int(place[0]), int(place[1] * share.shape[2] + place[2]))
        if (share > 1.0).any():
            broken.append(f"{name} is off by {share.max():.3g} times what its roundings allow")
        elif (beyond := error > limits[side, 1]).any():
            times = float((error / limits[side, 1]).max()) * DEVIATIONS
            strange.append(
                f"{name}: {int(beyond.sum())} elements up to {times:.3g} deviations from FP64"
            )
    outcome = Outcome.DEFECT if broken else (Outcome.SUSPECT if strange else Outcome.EXPLAINED)
    errors = [relative_error(side, exact) for side in outputs]
    said = broken or strange or ["both sides within the roundings that they declare"]
    apart = float(np.nan_to_num(np.abs(b - a)[worst], nan=np.inf))
    return Judgement(
        outcome,
        "attention",
        f"attention against FP64: {'; '.join(said)}",
        errors[0],
        errors[1],
        used,
        apart,
        worst[0],
        worst[1],
        len(a),
    )
