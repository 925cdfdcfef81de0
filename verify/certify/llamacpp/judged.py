"""What is found of one operation of llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from verify.reference.certificates.result import Certificate, Outcome


@dataclass(frozen=True, slots=True)
class Judged:
    """``used``: share of the bound; ``convention``: what it computes by design, where that is no plain
    operation in FP32."""

    outcome: Outcome
    used: float
    reason: str
    convention: str = ""


def judged(certificate: Certificate) -> Judged:
    """The outcome of a certificate in words."""
    used = certificate.numbers.get("budget_used", 0.0)
    reason = f"{certificate.op} uses {used:.3g} of its bound"
    failed = [check.name for check in certificate.failed]
    if failed:
        reason += f" ({'; '.join([*failed[:2], *_named(certificate)])})"
    return Judged(certificate.outcome, used, reason, ", ".join(certificate.conventions))


def _named(certificate: Certificate) -> list[str]:
    """The mistake that reproduces the output, if one does."""
    return [reason for reason in certificate.reasons if reason.startswith("reproduced by")][:1]
