"""The findings about tokens: choices that the logits do not explain, and flips that are too far."""

from __future__ import annotations

from verify.bisect.result import Finding, Flips, TokenPosition
from verify.bisect.rules import Measured, Subject, decide
from verify.bisect.tokens import TokenReport


def state_after_logits(report: TokenReport) -> list[Finding]:
    """Tokens that differ for another reason than their logits."""
    if not report.after_logits:
        return []
    choice = report.after_logits[0]
    first = choice.position
    equal = first in report.equal_logits
    reasons = [f"{_name(first)}: id {first.chosen_a} in A, id {first.chosen_b} in B"]
    if choice.tie_rule:
        reasons.append(
            "both are the best logit in both runs, an exact tie: the runs' rules for ties differ"
        )
    reasons += choice.against
    reasons += [choice.at_rank] if choice.at_rank else []
    reasons.append(
        "what follows the logits differs: sampling, its seed, tie rules, penalties, filters"
    )
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.CHOICE)),
            title="Tokens differ although the logits that chose them are equal in every bit"
            if equal
            else "Tokens differ, and the logits do not say so",
            reasons=reasons,
            taps=["logits", "tokens.out"],
            support=_positions(len(report.after_logits)),
            settle=["compare the sampling settings of the two engines, and their rule for ties"],
        )
    ]


def state_lead(report: TokenReport, open_taps: list[str]) -> list[Finding]:
    """The first flip that rounding of the measured size does not make.

    A lead and no verdict: sigma is measured on these runs, and rounding is not Gaussian far out.

    Args:
        open_taps: taps that differ and that nothing has explained; without any there is nothing
            that such a flip could lead to.
    """
    sure, flips = report.sure_flips, report.flips
    if not sure or flips is None or not open_taps:
        return []
    first = sure[0]
    times = first.margin_a / flips.sigma if flips.sigma else float("inf")
    moved = f"the leading candidates of all {flips.positions} compared choices moved by"
    return [
        Finding(
            verdict=decide(Measured(subject=Subject.REST)),
            title=f"A lead: {_name(first)} flips at {times:.3g} sigma",
            reasons=[
                f"A's margin there is {first.margin_a:.4g}; {moved} {flips.sigma:.3g} (rms, sigma)",
                counted(flips),
                "a flip above 6 sigma is a place to look at, and no proof of a defect",
            ],
            taps=["logits"],
            support=f"position {first.position} of {first.sequence}; {_positions(len(sure))}",
            numbers={"margin": first.margin_a, "sigma": flips.sigma, "margin / sigma": times},
            settle=[f"look at what differs most at position {first.position}, tap by tap"],
        )
    ]


def counted(flips: Flips) -> str:
    """Observed against expected flips in words."""
    flipped = "1 flips" if flips.observed == 1 else f"{flips.observed} flip"
    return (
        f"of {flips.positions} choices {flipped}, {flips.expected:.3g} were to be expected "
        f"(chance of as many or more: {flips.p_more:.2g})"
    )


def _positions(count: int) -> str:
    return "1 position" if count == 1 else f"{count} positions"


def _name(token: TokenPosition) -> str:
    return f"generated token {token.index} of {token.sequence}"
