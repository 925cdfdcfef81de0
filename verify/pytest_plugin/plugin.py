"""Fixtures and options. Light to import: every pytest run on the machine loads this module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verify.pytest_plugin.checker import Checker

_PHASES = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("verify")
    group.addoption(
        "--verify-ledger",
        metavar="PATH",
        help="append the outcome and the evidence of every test that checks something with verify",
    )
    group.addoption(
        "--verify-evidence",
        metavar="DIR",
        help="keep what failing checks rest on under DIR (default: the test's temporary folder)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    item.stash.setdefault(_PHASES, {})[report.when] = report.outcome
    return report


@pytest.fixture
def verify_checks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Checker]:
    """All checks of one test: ``bitwise``, ``within``, ``certified``, ``capture``, ``runs``."""
    from verify.pytest_plugin.checker import Checker

    config = request.config
    kept = config.getoption("--verify-evidence")
    safe = re.sub(r"[^\w.-]+", "_", request.node.nodeid)
    checker = Checker(Path(kept).absolute() / safe if kept else tmp_path / "verify")
    yield checker
    ledger = config.getoption("--verify-ledger")
    if ledger and checker.outcomes:
        _append(Path(ledger), request.node, checker)


@pytest.fixture
def verify_bitwise(verify_checks: Checker) -> Any:
    """``verify_bitwise(a, b)``: equal to the last bit."""
    return verify_checks.bitwise


@pytest.fixture
def verify_within(verify_checks: Checker) -> Any:
    """``verify_within(actual, exact, bound)``: no element further off than its bound."""
    return verify_checks.within


@pytest.fixture
def verify_certified(verify_checks: Checker) -> Any:
    """``verify_certified(actual, inputs, op, arithmetic)``: explained by the declared arithmetic."""
    return verify_checks.certified


@pytest.fixture
def verify_capture(verify_checks: Checker) -> Any:
    """``with verify_capture(model, "name") as run:`` records a run beside the evidence."""
    return verify_checks.capture


@pytest.fixture
def verify_runs(verify_checks: Checker) -> Any:
    """``verify_runs("a", "b")``: bisect finds two recorded runs equal or explained."""
    return verify_checks.runs


def _append(path: Path, node: pytest.Item, checker: Checker) -> None:
    """One entry a test. The test's own outcome counts: a check may have been expected to fail, and
    a test may fail beside its checks."""
    from verify.ledger.store import Ledger
    from verify.report.json import finite

    phases = node.stash.get(_PHASES, {})
    data = {
        "test": node.nodeid,
        "result": "PASS" if phases.get("call") == "passed" else "FAIL",
        "checks": [
            {
                "check": o.check,
                "passed": o.passed,
                "headline": o.headline,
                "numbers": finite(o.numbers),
            }
            for o in checker.outcomes
        ],
    }
    Ledger(path).append("pytest", data, list(checker.files))
