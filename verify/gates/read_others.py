"""Gates that read endpoints.json, certificates, noise.json, environments and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from verify.certify.run import CertifyResult
from verify.endpoints.result import CertificateCheck, EndpointComparison, PairCheck, State
from verify.gates import read_bisect
from verify.gates.config import Env, Gate, Repeatability, Speed, Tests
from verify.gates.result import Reading, Result
from verify.noise.result import NoiseResult
from verify.reference.certificates.result import Outcome
from verify.report.json import from_json

_XML_BYTES = 64 << 20


class _Head(msgspec.Struct):
    schema: str


class _Difference(msgspec.Struct):
    name: str
    weight: str
    subject: str = ""


class _Differences(msgspec.Struct):
    """``differences`` of ``verify env diff --json``, ``confounders`` of report.json."""

    differences: list[_Difference] | None = None
    confounders: list[_Difference] | None = None


def _schema(path: Path) -> str:
    return msgspec.json.decode(path.read_bytes(), type=_Head).schema.partition("/")[0]


def bitwise(gate: Gate, path: Path) -> Reading:
    """PASS: every output of every pair and case is bitwise equal."""
    if _schema(path) == "verify-bisect":
        return read_bisect.identical(path)
    found = from_json(path.read_bytes(), EndpointComparison)
    pairs = [check for check in found.checks if isinstance(check, PairCheck)]
    differing = [p for p in pairs if any(not tensor.equal for tensor in p.tensors)]
    compared = sum(tensor.elements for pair in pairs for tensor in pair.tensors)
    numbers = {"pairs": len(pairs), "differing": len(differing), "elements": compared}
    if differing:
        first = differing[0]
        reason = (
            f"{len(differing)} of {len(pairs)} pairs differ, first {first.endpoint} on {first.case}"
        )
        return Reading(Result.FAIL, reason, dict(numbers))
    return _settled(
        (p.state for p in pairs), f"{len(pairs)} pairs are bitwise equal", numbers, compared
    )


def certificate(gate: Gate, path: Path) -> Reading:
    """PASS: every certificate covers every row and is EXPLAINED."""
    if _schema(path) == "verify-certify":
        return _certified(msgspec.convert(_json(path), CertifyResult, strict=False))
    found = from_json(path.read_bytes(), EndpointComparison)
    checks = [check for check in found.checks if isinstance(check, CertificateCheck)]
    if not checks or all(check.state is State.NOT_RUN for check in checks):
        return Reading(Result.SKIPPED, "no certificate was made")
    beyond = [check for check in checks if not check.explains_every_row]
    if beyond:
        reason = (
            f"{beyond[0].endpoint} on {beyond[0].case}: {beyond[0].outcome or beyond[0].reason}"
        )
        return Reading(
            Result.FAIL, f"{len(beyond)} of {len(checks)} do not explain every row, {reason}"
        )
    return Reading(Result.PASS, f"{len(checks)} certificates explain every row")


def _certified(found: CertifyResult) -> Reading:
    if not found.records:
        return Reading(Result.SKIPPED, "no record was judged")
    beyond = [r.record for r in found.records if r.certificate.outcome is not Outcome.EXPLAINED]
    if beyond or found.outcome is not Outcome.EXPLAINED:
        return Reading(Result.FAIL, f"{found.outcome}: {', '.join(beyond[:3])}")
    return Reading(Result.PASS, f"{len(found.records)} records are explained")


def repeatability(gate: Repeatability, path: Path) -> Reading:
    """PASS: enough runs of one configuration, all bitwise equal."""
    if _schema(path) == "verify-bisect":
        if gate.min_runs > 2:
            return Reading(Result.SKIPPED, f"2 runs of the {gate.min_runs} that are asked for")
        return read_bisect.identical(path)
    found = msgspec.convert(_json(path), NoiseResult, strict=False)
    runs = found.repeats.repeats + 1
    if not found.repeats.equal:
        return Reading(Result.FAIL, found.summary, {"runs": runs})
    if runs < gate.min_runs:
        return Reading(Result.SKIPPED, f"{runs} runs of the {gate.min_runs} that are asked for")
    return Reading(Result.PASS, f"{runs} runs are bitwise equal", {"runs": runs})


def speed(gate: Speed, path: Path) -> Reading:
    """PASS: for every timed pair the whole interval of the ratio is within the limit."""
    found = from_json(path.read_bytes(), EndpointComparison)
    timed = [check for check in found.speed if check.pairs and check.state is not State.NOT_RUN]
    if not timed or len(timed) < len(found.speed):
        return Reading(Result.SKIPPED, f"{len(timed)} of {len(found.speed)} pairs were timed")
    worst = max(timed, key=lambda check: check.high)
    numbers = {"ratio": worst.ratio, "low": worst.low, "high": worst.high}
    reason = (
        f"{worst.endpoint} on {worst.case}: ratio {worst.ratio:.4f}, "
        f"95 % [{worst.low:.4f}, {worst.high:.4f}], limit {gate.max_ratio}"
    )
    within = all(check.high <= gate.max_ratio for check in timed)
    return Reading(Result.PASS if within else Result.FAIL, reason, dict(numbers))


def env(gate: Env, path: Path) -> Reading:
    """PASS: nothing of the named weights differs beside what is allowed."""
    held = msgspec.json.decode(path.read_bytes(), type=_Differences)
    found = held.differences if held.differences is not None else held.confounders
    if found is None:
        raise ValueError("no list of differences, as `verify env diff --json` writes it")
    counted = [d for d in found if d.weight in gate.weights]
    other = [d.name for d in counted if not {d.name, d.subject} & set(gate.allow)]
    numbers = {"differences": len(found), "not_allowed": len(other)}
    if other:
        reason = f"{len(other)} undeclared differences: {', '.join(other[:4])}"
        return Reading(Result.FAIL, reason, dict(numbers))
    return Reading(Result.PASS, "nothing undeclared differs", dict(numbers))


def tests(gate: Tests, path: Path) -> Reading:
    """PASS: enough tests ran, and none failed. Skipped tests did not run."""
    if path.stat().st_size > _XML_BYTES:
        raise ValueError(f"larger than {_XML_BYTES} bytes")
    data = path.read_bytes()
    if b"<!ENTITY" in data or b"<!DOCTYPE" in data:
        raise ValueError("JUnit XML declares no entities")
    cases = list(ElementTree.fromstring(data).iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    ran = sum(case.find("skipped") is None for case in cases)
    numbers = {"tests": ran, "failed": len(failed), "skipped": len(cases) - ran}
    if failed:
        names = ", ".join(case.get("name", "?") for case in failed[:3])
        return Reading(Result.FAIL, f"{len(failed)} of {ran} tests fail: {names}", dict(numbers))
    if ran < gate.min_tests:
        reason = f"{ran} tests ran, {len(cases) - ran} were skipped; {gate.min_tests} are asked for"
        return Reading(Result.SKIPPED, reason, dict(numbers))
    return Reading(Result.PASS, f"{ran} tests pass", dict(numbers))


def _settled(
    states: Iterable[State], passed: str, numbers: dict[str, int], compared: int
) -> Reading:
    """PASS where all checks ran and passed."""
    found = set(states)
    if State.FAILED in found or State.DIFFERENT in found:
        return Reading(Result.FAIL, "an endpoint failed", dict(numbers))
    if not found or not compared or State.NOT_RUN in found:
        return Reading(Result.SKIPPED, "not every pair was compared", dict(numbers))
    return Reading(Result.PASS, passed, dict(numbers))


def _json(path: Path) -> object:
    return json.loads(path.read_bytes())
