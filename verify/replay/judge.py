"""Is what an implementation adds of its own rounding? FP64 of the same operation on the same
inputs answers, for the operation of a module, an attention core, or the step between two taps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.compare.elements import floating_values
from verify.dumps.format.schema import Record
from verify.errors import VerifyError
from verify.forensics.casts import find_casts
from verify.formats import Format, encode, get_format
from verify.reference.certificates.certify import certify_pair
from verify.reference.certificates.layer_op import Inputs
from verify.reference.certificates.result import Certificate, Outcome
from verify.replay.attention import DEVIATIONS, judge_rows, storage
from verify.replay.cases import COLUMNS, Case
from verify.replay.ops import module_op, segment_op

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the reference says about the rows of a case.

    ``error_a`` and ``error_b``: relative L2 distances from FP64. ``used``: share of the budget that
    the element which uses most of it needs, ``apart`` its |b - a|; ``row`` and ``element`` say
    which one.
    """

    outcome: Outcome
    op: str
    reason: str
    error_a: float
    error_b: float
    used: float
    apart: float
    row: int
    element: int
    rows: int

    @property
    def closer(self) -> str:
        """Which side is closer to FP64: ``A``, ``B`` or ``equal`` (within 5 %)."""
        low, high = sorted((self.error_a, self.error_b))
        # Two correct kernels round differently here and there; their errors agree that well.
        if high <= 1.05 * low:
            return "equal"
        return "A" if self.error_a < self.error_b else "B"


@dataclass(frozen=True, slots=True)
class Sides:
    """Which of a case's words are of run A, and what A's and B's cores are called."""

    wanted_is_a: bool
    implementation_a: str = ""
    implementation_b: str = ""

    def of(self, case: Case) -> tuple[Any, Any]:
        """Words of A and of B."""
        return (case.wanted, case.computed) if self.wanted_is_a else (case.computed, case.wanted)


def judge(case: Case, sides: Sides) -> Judgement | None:
    """None where no reference knows the operation, or the words are no floating-point numbers."""
    fmt = get_format(case.record.dtype)
    if fmt.kind != "float":
        return None
    try:
        if case.attention is not None:
            return _judge_attention(case, sides, fmt)
        found = _layer(case, sides, fmt) or _judge_exact(case, sides, fmt)
        if found is None or found.outcome is Outcome.DEFECT:
            # Values that are the other side's, rounded, all of them, are no accident: name that.
            return _judge_cast(case, sides, fmt) or found
        return found
    except VerifyError:
        return None  # inputs that the reference does not admit: not judged, and said so


def _layer(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
    call = module_op(case) if case.module is not None else segment_op(case)
    if call is None:
        return None
    op, inputs = call
    a, b = (floating_values(words, fmt) for words in sides.of(case))
    rows = len(a)
    shape = _shape_of(inputs, rows, a.shape[1])
    if op.name == "linear":
        inputs, a, b, columns = _some_columns(inputs, a, b)
    else:
        columns = np.arange(a.shape[1])
    with np.errstate(all="ignore"):
        certificate = certify_pair(
            a.reshape(shape) if op.name != "linear" else a,
            b.reshape(shape) if op.name != "linear" else b,
            inputs,
            op,
            store_a=fmt.name,
            store_b=fmt.name,
        )
    return _from_certificate(certificate, a, b, columns, rows)


def _shape_of(inputs: Inputs, rows: int, length: int) -> tuple[int, ...]:
    """Rotations see heads apart."""
    x = inputs.get("x")
    if x is not None and getattr(x, "ndim", 0) == 3:
        return (rows, x.shape[1], x.shape[2])
    return (rows, length)


def _some_columns(inputs: Inputs, a: Values, b: Values) -> tuple[Inputs, Values, Values, Values]:
    """At most COLUMNS outputs of a linear layer: those that differ most, and some of all."""
    count = a.shape[1]
    if count <= COLUMNS:
        return inputs, a, b, np.arange(count)
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(b - a), nan=np.inf).max(axis=0)
    worst = np.argsort(-apart, kind="stable")[: COLUMNS // 2]
    spread = np.linspace(0, count - 1, COLUMNS // 2).astype(np.int64)
    columns = np.unique(np.concatenate([worst, spread]))
    chosen = {**inputs, "weight": inputs["weight"][columns]}
    if inputs.get("bias") is not None:
        chosen["bias"] = inputs["bias"][columns]
    return chosen, a[:, columns], b[:, columns], columns


def _from_certificate(
    certificate: Certificate, a: Values, b: Values, columns: Values, rows: int
) -> Judgement:
    row, element, apart = _worst(a, b)
    numbers = certificate.numbers
    shared = next(c for c in certificate.checks if c.name == "difference in both budgets")
    failed = [c.name for c in certificate.failed if c.outcome is certificate.outcome]
    reason = f"{certificate.op} against FP64: " + "; ".join(
        certificate.reasons[:3] if failed else [*certificate.conventions, *certificate.reasons[-1:]]
    )
    return Judgement(
        certificate.outcome,
        certificate.op,
        reason,
        numbers["error_a"],
        numbers["error_b"],
        shared.statistic,
        apart,
        row,
        int(columns[element]),
        rows,
    )


def _worst(a: Values, b: Values) -> tuple[int, int, float]:
    with np.errstate(invalid="ignore"):
        apart = np.abs(b - a)
    apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)
    apart = np.where(np.isfinite(apart), apart, np.inf)
    row, element = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return int(row), int(element), float(apart[row, element])


def _judge_exact(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
    """Operations whose one right result is known to the last bit: products, and copies."""
    sources = list(case.sources.values())
    length = case.wanted.shape[1]
    if any(dtype != fmt.name or words.shape[1] != length for words, dtype in sources):
        return None
    ops = {op.partition("[")[0] for op in case.record.ops} - _MOVES
    if len(sources) == 2 and ops == {"aten.mul"}:
        x, y = (floating_values(words, fmt) for words, _ in sources)
        with np.errstate(all="ignore"):
            # Two factors of at most 24 bits: exact in float64, so rounded once below.
            right, name = encode(x * y, fmt), "product"
    elif len(sources) == 1 and not ops:
        right, name = sources[0][0], "copy"
    else:
        return None
    truth = floating_values(right, fmt)
    a, b = (floating_values(words, fmt) for words in sides.of(case))
    errors = [_relative(side, truth) for side in (a, b)]
    row, element, apart = _worst(a, b)
    wrong = [side for side, error in zip("AB", errors, strict=True) if error > 0.0]
    outcome = Outcome.DEFECT if wrong else Outcome.EXPLAINED
    reason = (
        f"{name} of its inputs has one right result, and {' and '.join(wrong)} has another"
        if wrong
        else f"{name}: equal in value"
    )
    used = np.inf if wrong else 0.0
    return Judgement(outcome, name, reason, errors[0], errors[1], used, apart, row, element, len(a))


def _judge_cast(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
    """One side holds the other's values rounded to a smaller format, every one of them."""
    words = sides.of(case)
    cast = next((c for c in find_casts([words], fmt, fmt) if c.exact), None)
    if cast is None:
        return None
    a, b = (floating_values(side, fmt) for side in words)
    truth = a if cast.rounded == "B" else b
    row, element, apart = _worst(a, b)
    return Judgement(
        Outcome.PRECISION, f"cast to {cast.format}", cast.describe(),
        _relative(a, truth), _relative(b, truth), 1.0, apart, row, element, len(a),
    )  # fmt: skip


_MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "view", "_unsafe_view", "reshape", "transpose", "t", "permute", "expand", "clone",
        "contiguous", "slice", "select", "unsqueeze", "squeeze", "cat", "split", "chunk",
        "alias", "detach", "narrow", "index_select", "as_strided", "unbind",
    )
)  # fmt: skip


def _relative(values: Values, truth: Values) -> float:
    with np.errstate(invalid="ignore"):
        apart = np.abs(values - truth)
    apart = np.where((values == truth) | (np.isnan(values) & np.isnan(truth)), 0.0, apart)
    if not np.isfinite(apart).all():
        return float("inf")
    size = float(np.linalg.norm(np.where(np.isfinite(truth), truth, 0.0)))
    error = float(np.linalg.norm(apart))
    return error / size if size > 0.0 else (float("inf") if error else 0.0)


def _judge_attention(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
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
            for side in range(2):
                found = judge_rows(core.q[row, some], keys, values, every, scale, stored[side])
                exact[row, some] = found.exact
                limits[side, 0, row, some] = found.bound
                limits[side, 1, row, some] = np.minimum(found.bound, DEVIATIONS * found.deviation)
    return _attention_outcome(outputs, exact, limits + fmt.min_subnormal, a, b)


def _by_head(values: Values, record: Record, heads: int, dim: int) -> Values:
    """[rows, heads, dim]: rows hold their other axes in the order of the axes."""
    return values.reshape(len(values), heads, dim)


def _attention_outcome(
    outputs: list[Values], exact: Values, limits: Values, a: Values, b: Values
) -> Judgement:
    used, broken, strange = 0.0, [], []
    worst = (0, 0)
    for side, name in enumerate("AB"):
        with np.errstate(invalid="ignore"):
            error = np.abs(outputs[side] - exact)
        error = np.where(np.isfinite(error), error, np.inf)
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
    errors = [_relative(side, exact) for side in outputs]
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
