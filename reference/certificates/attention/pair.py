"""Two outputs of one problem: who is closer to the truth, and is their difference allowed?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from verify.bounds import Bound
from verify.reference.attention.inputs import AttentionInputs, Row, check_rows
from verify.reference.attention.streaming import attend
from verify.reference.certificates.attention.certify import (
    OP,
    actual_rows,
    certify_attention,
    row_budgets,
)
from verify.reference.certificates.result import Certificate, Check, conclude
from verify.reference.replay.arithmetic import Arithmetic

CONVENTIONS = ("mass", "scale_fold", "probability", "roundings", "parts", "output")
"""Fields of ``Arithmetic`` that are choices of a kernel's author, not of its order or hardware."""


def certify_attention_pair(
    a: Tensor,
    b: Tensor,
    inputs: AttentionInputs,
    arithmetic_a: Arithmetic,
    arithmetic_b: Arithmetic,
    rows: Sequence[Row] | None = None,
) -> Certificate:
    """Judge each side by its own declaration, then the difference by both budgets.

    EXPLAINED: both are, and follow the same conventions (or agree bit for bit). PRECISION: both
    are, their declared conventions differ, and ``conventions`` names how. Otherwise the outcome of
    the worse side.

    ``numbers``: ``error_a`` and ``error_b``, relative L2 against the FP64 answer on ``inputs``
    (cache scales exact); ``closer``: -1 A, 1 B, 0 equal; ``difference``: relative L2 of A - B.

    Raises:
        ArgumentError: as :func:`certify_attention`.
    """
    chosen = check_rows(inputs, rows)
    y = [actual_rows(side, inputs, chosen) for side in (a, b)]
    rules = (arithmetic_a, arithmetic_b)
    sides = [certify_attention(rows_of, inputs, rule, chosen, outputs=2 * len(chosen))
             for rows_of, rule in zip(y, rules, strict=True)]  # fmt: skip
    checks = [replace_name(check, f"{name}: {check.name}")
              for name, side in zip("AB", sides, strict=True) for check in side.checks]  # fmt: skip
    checks.append(_difference_check(y, inputs, rules, chosen))
    same = bool(torch.equal(y[0], y[1]))
    named = [] if same else conventions(*rules, inputs)
    numbers = _numbers(y, inputs, chosen)
    reasons = [_closer(numbers)]
    reasons += [f"declared conventions differ: {text}" for text in named]
    reasons += [reason for side in sides for reason in side.reasons if "explain" in reason]
    name = f"{arithmetic_a.name} against {arithmetic_b.name}"
    return conclude(OP, name, checks, reasons=reasons, numbers=numbers, conventions=named)


def conventions(a: Arithmetic, b: Arithmetic, inputs: AttentionInputs) -> list[str]:
    """The declared conventions in which two arithmetics differ on these inputs."""
    found = [
        f"{field} {getattr(a, field)} against {getattr(b, field)}"
        for field in CONVENTIONS
        if getattr(a, field) != getattr(b, field)
    ]
    if inputs.k_scale == inputs.v_scale == 1.0:
        found = [text for text in found if not text.startswith("scale_fold")]
    return found


def replace_name(check: Check, name: str) -> Check:
    """The same check under another name."""
    return Check(
        name=name, statistic=check.statistic, limit=check.limit, passed=check.passed,
        detail=check.detail, if_broken=check.if_broken, log10_p=check.log10_p,
    )  # fmt: skip


def _difference_check(
    y: list[Tensor], inputs: AttentionInputs, rules: tuple[Arithmetic, Arithmetic],
    rows: list[Row],
) -> Check:  # fmt: skip
    """|A - B| <= B_A + B_B + |reference A - reference B| in every element."""
    found = [row_budgets(inputs, rule, rows) for rule in rules]
    allowed = found[0][1] + found[1][1] + (found[0][0] - found[1][0]).abs()
    share = ((y[0] - y[1]).abs() / allowed).nan_to_num(torch.inf)
    same_nan = torch.isnan(y[0]) & torch.isnan(y[1])
    worst = float(torch.where(same_nan | (y[0] == y[1]), 0.0, share).max())
    return Check(
        name="difference within both budgets",
        statistic=worst,
        limit=Bound(1.0, "|A - B| as a share of B_A + B_B and the gap between the references"),
        passed=worst <= 1.0,
    )


def _numbers(y: list[Tensor], inputs: AttentionInputs, rows: list[Row]) -> dict[str, float]:
    exact = attend(inputs, rows, exact_spread=False).output
    size = max(float(exact.norm()), 1e-300)
    errors = [float((side - exact).norm()) / size for side in y]
    return {
        "error_a": errors[0],
        "error_b": errors[1],
        "closer": float((errors[0] > errors[1]) - (errors[0] < errors[1])),
        "difference": float((y[0] - y[1]).norm()) / size,
    }


def _closer(numbers: dict[str, float]) -> str:
    a, b = numbers["error_a"], numbers["error_b"]
    who = {-1.0: "A is closer", 1.0: "B is closer", 0.0: "equally close"}[numbers["closer"]]
    return f"{who} to FP64: relative L2 {a:.3g} (A), {b:.3g} (B)"
