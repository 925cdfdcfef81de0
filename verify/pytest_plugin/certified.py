"""Explained by the declared arithmetic, or the checks of the certificate that are broken."""

from __future__ import annotations

from typing import Any

from verify.pytest_plugin.outcome import Outcome, labelled
from verify.report.numbers import measure

_CHECK = "verify_certified"


def check_certified(
    actual: Any, inputs: Any, op: Any, arithmetic: Any = None, *, store: str | None = None
) -> Outcome:
    """Pass where :func:`verify.reference.certificates.certify.certify` says EXPLAINED.

    Args: as there.

    Raises:
        ArgumentError: inputs, output or parameters that do not fit.
    """
    from verify.reference.certificates.certify import certify
    from verify.reference.certificates.result import Outcome as Judged

    certificate = certify(actual, inputs, op, arithmetic, store=store)
    passed = certificate.outcome is Judged.EXPLAINED
    lines = [
        labelled("operation", certificate.op),
        labelled("arithmetic", certificate.arithmetic),
        *(labelled("reason", reason) for reason in certificate.reasons),
        *(labelled("number", f"{k} {measure(v)}") for k, v in certificate.numbers.items()),
    ]
    return Outcome(
        _CHECK,
        passed,
        f"{_CHECK}: {certificate.outcome}, {len(certificate.checks)} checks, "
        f"{len(certificate.failed)} broken",
        lines,
        {"outcome": str(certificate.outcome), **certificate.numbers},
    )
