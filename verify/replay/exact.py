"""Operations whose one right result is known to the last bit, and casts, and what a cache may do."""

from __future__ import annotations

import numpy as np

from verify.compare.elements import floating_values
from verify.forensics.casts import find_casts
from verify.formats import Format, encode, get_format
from verify.reference.certificates.result import Outcome
from verify.replay.cases import Case
from verify.replay.judgement import Judgement, Sides, relative_error, worst_element

COARSEST = 6.0
"""A cache may store its rows in a narrower format, with scales by row, channel or tensor. The
coarsest in use has four bits: float4_e2m1fn leaves 2 between 4 and its largest number 6, so that an
element is off by at most a sixth of the largest that shares its scale."""


def judge_exact(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
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
    elif len(sources) == 1 and not ops and sides.both_move:
        right, name = sources[0][0], "copy"
    else:
        return None
    truth = floating_values(right, fmt)
    a, b = (floating_values(words, fmt) for words in sides.of(case))
    errors = [relative_error(side, truth) for side in (a, b)]
    row, element, apart = worst_element(a, b)
    wrong = [side for side, error in zip("AB", errors, strict=True) if error > 0.0]
    outcome = Outcome.DEFECT if wrong else Outcome.EXPLAINED
    reason = (
        f"{name} of its inputs has one right result, and {' and '.join(wrong)} has another"
        if wrong
        else f"{name}: equal in value"
    )
    used = np.inf if wrong else 0.0
    return Judgement(outcome, name, reason, errors[0], errors[1], used, apart, row, element, len(a))


def judge_cast(case: Case, sides: Sides, fmt: Format) -> Judgement | None:
    """One side holds the other's values rounded to a smaller format, every one of them."""
    words = sides.of(case)
    cast = next((c for c in find_casts([words], fmt, fmt) if c.exact), None)
    if cast is None:
        return None
    a, b = (floating_values(side, fmt) for side in words)
    truth = a if cast.rounded == "B" else b
    row, element, apart = worst_element(a, b)
    return Judgement(
        Outcome.PRECISION, f"cast to {cast.format}", cast.describe(),
        relative_error(a, truth), relative_error(b, truth), 1.0, apart, row, element, len(a),
    )  # fmt: skip


_MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "view", "_unsafe_view", "reshape", "transpose", "t", "permute", "expand", "clone",
        "contiguous", "slice", "select", "unsqueeze", "squeeze", "cat", "split", "chunk",
        "alias", "detach", "narrow", "index_select", "as_strided", "unbind",
    )
)  # fmt: skip


def judge_cache(case: Case, sides: Sides) -> Judgement | None:
    """What attention reads from a cache is what was put in, up to the format of the cache; a side
    that is further off than any format explains has read something else."""
    tap = case.record.tap
    given = tap.replace(".attn.in.", ".cache.in.")
    if given == tap or given not in case.sources:
        return None
    words, dtype = case.sources[given]
    fmt = get_format(case.record.dtype)
    if words.shape != case.wanted.shape:
        return None
    truth = floating_values(words, get_format(dtype))
    a, b = (floating_values(side, fmt) for side in sides.of(case))
    limit = np.abs(truth).max(initial=0.0) / COARSEST
    with np.errstate(invalid="ignore"):
        used = [float((np.abs(side - truth) / max(limit, 1e-300)).max()) for side in (a, b)]
    wrong = [name for name, share in zip("AB", used, strict=True) if not share <= 1.0]
    if not wrong:
        return None  # it may be a format; which one, nothing here says
    row, element, apart = worst_element(a, b)
    reason = (
        f"{' and '.join(wrong)} read other values than were put into the cache: off by "
        f"{max(used) / COARSEST:.3g} of the largest of these rows, and no format of four bits or more "
        f"is off by over {1 / COARSEST:.3g}"
    )
    errors = [relative_error(side, truth) for side in (a, b)]
    return Judgement(
        Outcome.DEFECT, "cache read", reason, errors[0], errors[1], max(used), apart, row, element,
        len(a),
    )  # fmt: skip
