"""``certify_attention``: is an output of attention what its declared arithmetic gives?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.bounds import Bound
from verify.errors import ArgumentError
from verify.reference.attention.inputs import (
    AttentionInputs,
    Row,
    RowGroup,
    check_rows,
    row_groups,
)
from verify.reference.attention.streaming import AttentionResult, attend
from verify.reference.certificates.attention.budget import Budget, attention_budget
from verify.reference.certificates.attention.checks import (
    RowJudge,
    bound_check,
    finite_check,
)
from verify.reference.certificates.attention.filters import scale_shift
from verify.reference.certificates.attention.noise import expected_noise
from verify.reference.certificates.attention.walk import walk
from verify.reference.certificates.result import Certificate, Check, Outcome, conclude, worst
from verify.reference.replay.arithmetic import Arithmetic
from verify.reference.replay.attention import declared_inputs
from verify.reference.replay.interval import replay_interval

OP = "attention"

_SCORES = 1 << 21  # scores held at a time: 16 MiB for each of a handful of tensors


def certify_attention(
    actual: Tensor,
    inputs: AttentionInputs,
    arithmetic: Arithmetic,
    rows: Sequence[Row] | None = None,
    *,
    outputs: int | None = None,
    replay: bool = False,
) -> Certificate:
    """One certificate over all chosen rows: the worst check of each kind, with its row.

    Args:
        actual: the output: [batch, tokens_q, heads_q, value_dim], or [rows, value_dim] in the
            order of ``rows``.
        inputs: the same rounded tensors that the kernel saw.
        arithmetic: what the kernel declares.
        rows: (batch, token, head); all if None. One row of 256K keys of 256 takes seconds.
        outputs: rows judged in the whole campaign, over which the chance of a false alarm is
            kept; the rows of this call if None.
        replay: also demand that the output lies in the replay's interval (C1).

    Raises:
        ArgumentError: an actual whose shape does not fit, or as ``AttentionInputs``.
    """
    each = certify_rows(actual, inputs, arithmetic, rows, outputs=outputs, replay=replay)
    chosen = check_rows(inputs, rows)
    names = list(dict.fromkeys(check.name for one in each for check in one.checks))
    checks = [_worst_check(name, each, chosen) for name in names]
    bad = [(row, one) for row, one in zip(chosen, each, strict=True) if one.reasons]
    bad.sort(key=lambda pair: pair[1].outcome == worst(one.outcome for one in each), reverse=True)
    reasons = [f"{_place(row)}: {reason}" for row, one in bad[:4] for reason in one.reasons
               if not _repeats_a_check(reason, one)]  # fmt: skip
    if bad:
        reasons.append(f"{len(bad)} of {len(each)} rows are not explained")
    numbers = {name: max(one.numbers[name] for one in each if name in one.numbers)
               for name in dict.fromkeys(name for one in each for name in one.numbers)}  # fmt: skip
    return conclude(OP, arithmetic.name, checks, reasons=reasons, numbers=numbers)


def certify_rows(
    actual: Tensor,
    inputs: AttentionInputs,
    arithmetic: Arithmetic,
    rows: Sequence[Row] | None = None,
    *,
    outputs: int | None = None,
    replay: bool = False,
) -> list[Certificate]:
    """A certificate for each row, in the order of ``rows``; arguments as certify_attention."""
    chosen = check_rows(inputs, rows)
    found: list[Certificate | None] = [None] * len(chosen)
    flat = actual_rows(actual, inputs, chosen)
    inside = _replay_checks(flat, inputs, arithmetic, chosen) if replay else {}
    for place, judged in _judge_all(flat, inputs, arithmetic, chosen, outputs or len(chosen)):
        extra = [inside[place]] if place in inside else []
        found[place] = conclude(
            OP, arithmetic.name, judged.checks + extra, reasons=judged.reasons,
            numbers=judged.numbers,
        )  # fmt: skip
    return [certificate for certificate in found if certificate is not None]


@dataclass(frozen=True, eq=False)
class Judged:
    """What the certificate of one row is made of."""

    checks: list[Check]
    reasons: list[str]
    numbers: dict[str, float]
    exact: Tensor
    budget: Tensor


def _judge_all(
    actual: Tensor, inputs: AttentionInputs, arithmetic: Arithmetic, rows: list[Row], outputs: int
) -> Iterator[tuple[int, Judged]]:
    operands = declared_inputs(inputs, arithmetic)
    exact = attend(operands, rows, exact_spread=False)
    ranges = arithmetic.ranges(operands)
    limit = max(1, min(64, _SCORES // operands.k.shape[1]))
    for group in row_groups(operands, rows, limit=limit):
        index = torch.tensor(group.index)
        if not group.seen:
            for place in group.index:
                yield place, _judge_empty(actual[place], exact, place)
            continue
        yield from _judge_group(actual, exact, group, arithmetic, ranges, outputs, index)


def row_budgets(
    inputs: AttentionInputs, arithmetic: Arithmetic, rows: Sequence[Row]
) -> tuple[Tensor, Tensor]:
    """Exact output and B_d of each row, [rows, value_dim]; B_d is 0 for rows without keys."""
    operands = declared_inputs(inputs, arithmetic)
    exact = attend(operands, rows, exact_spread=False)
    total = torch.zeros_like(exact.output)
    limit = max(1, min(64, _SCORES // operands.k.shape[1]))
    for group in row_groups(operands, rows, limit=limit):
        if group.seen:
            walked = walk(group, arithmetic, arithmetic.ranges(operands))
            index = torch.tensor(group.index)
            budget = attention_budget(walked, arithmetic, exact.output[index], exact.bound[index])
            total[index] = budget.total
    return exact.output, total


def _judge_group(
    actual: Tensor, exact: AttentionResult, group: RowGroup, arithmetic: Arithmetic,
    ranges: list[tuple[int, int]], outputs: int, index: Tensor,
) -> Iterator[tuple[int, Judged]]:  # fmt: skip
    walked = walk(group, arithmetic, ranges)
    output = exact.output[index]
    budget = attention_budget(walked, arithmetic, output, exact.bound[index])
    noise = expected_noise(walked, arithmetic)
    shift = scale_shift(walked, output / group.v_scale)
    for row, place in enumerate(group.index):
        y, o, total = actual[place], output[row], budget.total[row]
        checks = [finite_check(y, o, total, arithmetic.output)]
        numbers = _budget_numbers(budget, exact, row, place)
        reasons: list[str] = []
        if bool(torch.isfinite(y).all()) and bool(torch.isfinite(o).all()):
            checks.append(bound_check(y, o, total))
            judge = RowJudge(walked, noise, arithmetic, row, o, y, shift)
            result = judge.judge(judge.tests * outputs)
            checks += result.checks
            numbers |= result.numbers
            reasons += result.reasons
        yield place, Judged(checks, reasons, numbers, o, total)


def _judge_empty(actual: Tensor, exact: AttentionResult, place: int) -> Judged:
    count = int((actual != 0).sum())
    check = Check(
        name="empty row",
        statistic=float(count),
        limit=Bound(0.0, "a row that sees no key gives zeros"),
        passed=count == 0,
    )
    zeros = torch.zeros_like(exact.output[place])
    return Judged([check], [], {}, exact.output[place], zeros)


def _budget_numbers(
    budget: Budget, exact: AttentionResult, row: int, place: int
) -> dict[str, float]:
    """Terms of B_d as shares of W, at the element where B_d is largest."""
    where = int(budget.total[row].argmax())
    size = max(float(exact.weighted_abs[place, where]), 1e-300)
    terms = {
        "T1": budget.weights, "T2": budget.probability, "T3": budget.accumulation,
        "T4": budget.mass, "T5": budget.final, "B_ref": budget.reference, "B": budget.total,
    }  # fmt: skip
    shares = {f"{name}/W": float(term[row, where]) / size for name, term in terms.items()}
    return shares | {"n_eff": float(exact.effective_keys[place])}


def actual_rows(actual: Tensor, inputs: AttentionInputs, rows: list[Row]) -> Tensor:
    """[rows, value_dim], float64, from a whole output or the rows themselves.

    Raises:
        ArgumentError: another shape.
    """
    width = inputs.v.shape[3]
    whole = (*inputs.q.shape[:3], width)
    if tuple(actual.shape) == whole:
        place = torch.tensor(rows, device=actual.device)
        return actual[place[:, 0], place[:, 1], place[:, 2]].double().to(inputs.q.device)
    if tuple(actual.shape) == (len(rows), width):
        return actual.double().to(inputs.q.device)
    raise ArgumentError(
        "the output does not fit the inputs", where="actual", found=list(actual.shape),
        allowed=f"{list(whole)}, or [{len(rows)}, {width}] for the chosen rows",
    )  # fmt: skip


def _replay_checks(
    actual: Tensor, inputs: AttentionInputs, arithmetic: Arithmetic, rows: list[Row]
) -> dict[int, Check]:
    interval = replay_interval(inputs, arithmetic, rows)
    outside = ~interval.contains(actual.cpu().numpy())
    return {
        place: Check(
            name="replay interval (C1)",
            statistic=float(outside[place].sum()),
            limit=Bound(0.0, "no element outside of what the declared arithmetic can give"),
            passed=not outside[place].any(),
            detail=f"elements {outside[place].nonzero()[0][:8].tolist()}",
        )
        for place in range(len(rows))
    }


def _worst_check(name: str, each: list[Certificate], rows: list[Row]) -> Check:
    """The check of that name with the worst outcome, then the largest statistic."""
    found = [(row, check) for row, one in zip(rows, each, strict=True)
             for check in one.checks if check.name == name]  # fmt: skip
    row, check = max(found, key=lambda pair: _severity(pair[1]))
    return Check(
        name=check.name, statistic=check.statistic, limit=check.limit, passed=check.passed,
        detail=f"{_place(row)}: {check.detail}" if check.detail else _place(row),
        if_broken=check.if_broken, log10_p=check.log10_p,
    )  # fmt: skip


def _severity(check: Check) -> tuple[bool, bool, float]:
    share = check.statistic / (check.limit.value or 1.0)
    return not check.passed, check.outcome == Outcome.DEFECT, share


def _repeats_a_check(reason: str, certificate: Certificate) -> bool:
    return any(reason.startswith(f"{check.name}:") for check in certificate.checks)


def _place(row: Row) -> str:
    return f"batch {row.batch} token {row.token} head {row.head}"
