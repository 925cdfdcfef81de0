"""The plugin as pytest loads it, in runs of its own."""

import json

import pytest
from safetensors import safe_open

from verify.ledger.check import check
from verify.ledger.store import Ledger

pytest_plugins = ["pytester"]

HEAD = """
import numpy as np, torch, pytest
from torch import nn
from verify.bounds import Bound
"""


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def go(body, *options):
        pytester.makepyfile(HEAD + body)
        # In a process of its own: what an inner run imports first is thrown away after it. The
        # plugin is named, not found, so that the test does not depend on how it is installed.
        return pytester.runpytest_subprocess(
            *("-p", "no:verify", "-p", "verify.pytest_plugin.plugin", "-p", "no:cacheprovider"),
            *options,
        )

    return go


FAILING = """
def test_bits(verify_bitwise):
    a = torch.zeros(2, 3, dtype=torch.bfloat16)
    verify_bitwise(a, a)
    b = a.clone(); b[1, 2] = 1.0
    verify_bitwise(a, b)

def test_bound(verify_within):
    verify_within(np.float32([1.5]), [1.0], Bound(0.25, "a quarter"))
"""


def test_failures_print_the_table_and_keep_the_tensors(run, pytester):
    result = run(FAILING, "--verify-evidence", "kept")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*verify_bitwise: 1 of 6 elements differ*", "*index 2 of 3*"])
    result.stdout.fnmatch_lines(["*1 of 1 elements break the bound*", "*a quarter*"])
    assert "checker.py" not in result.stdout.str()
    (kept,) = pytester.path.glob("kept/*test_bits/*.safetensors")
    with safe_open(kept, framework="numpy") as file:
        assert json.loads(file.metadata()["formats"]) == {"a": "bfloat16", "b": "bfloat16"}
        assert file.get_tensor("b")[1, 2] == 0x3F80


def test_outcomes_and_evidence_go_into_the_ledger(run, pytester):
    passing = "\ndef test_good(verify_bitwise):\n    verify_bitwise(np.ones(3), np.ones(3))\n"
    silent = "\ndef test_other():\n    pass\n"
    run(FAILING + passing + silent, "--verify-ledger", "book").assert_outcomes(passed=2, failed=2)
    entries = list(Ledger(pytester.path / "book").entries())
    results = {e.data["test"].split("::")[1]: e.data["result"] for e in entries}
    assert results == {"test_bits": "FAIL", "test_bound": "FAIL", "test_good": "PASS"}
    bits = next(e for e in entries if e.data["test"].endswith("test_bits"))
    assert [c["passed"] for c in bits.data["checks"]] == [True, False]
    assert {a.name for a in bits.artifacts} == {
        "verify_bitwise-2.safetensors",
        "verify_bitwise-2.txt",
    }
    assert not check(Ledger(pytester.path / "book")).problems


def test_a_test_that_fails_beside_its_checks_is_no_pass_in_the_ledger(run, pytester):
    body = "\ndef test_it(verify_bitwise):\n    verify_bitwise([1.0], [1.0])\n    assert 0\n"
    run(body, "--verify-ledger", "book").assert_outcomes(failed=1)
    (entry,) = Ledger(pytester.path / "book").entries()
    assert entry.data["result"] == "FAIL"


CERTIFIED = """
from verify.reference.certificates.norm import RmsNorm

def made(eps):
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * 1e-2
    w = torch.ones(64)
    return nn.functional.rms_norm(x, (64,), w, eps), {"x": x, "weight": w}

def test_right(verify_certified):
    y, inputs = made(1e-6)
    verify_certified(y, inputs, RmsNorm(eps=1e-6))

def test_wrong(verify_certified):
    y, inputs = made(1e-5)
    verify_certified(y, inputs, RmsNorm(eps=1e-6))
"""


def test_a_certificate_judges_an_output(run):
    result = run(CERTIFIED)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*verify_certified: *broken*"])


RUNS = """
def record(capture, name, change=0.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    model[2].register_forward_hook(lambda m, i, o: o + change if change else None)
    with torch.no_grad(), capture(model, name):
        model(torch.ones(1, 3, 8))

def test_same(verify_capture, verify_runs):
    record(verify_capture, "a"); record(verify_capture, "b")
    verify_runs("a", "b")

def test_other(verify_capture, verify_runs):
    record(verify_capture, "a"); record(verify_capture, "b", 1.0)
    verify_runs("a", "b")
"""


def test_two_recorded_runs_are_bisected(run, pytester):
    result = run(RUNS, "--verify-evidence", "kept", "--verify-ledger", "book")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*verify_runs: *"])
    assert list(pytester.path.glob("kept/*test_other/report-*/report.html"))
    failed = [e for e in Ledger(pytester.path / "book").entries() if e.data["result"] == "FAIL"]
    assert [{a.name for a in e.artifacts} for e in failed] == [{"report.html", "report.json"}]


def test_the_plugin_costs_other_test_runs_nothing(pytester):
    body = "import sys\ndef test_it():\n    assert not {'torch', 'numpy', 'msgspec'} & set(sys.modules)\n"
    pytester.makepyfile(body)
    options = ("-p", "no:verify", "-p", "verify.pytest_plugin.plugin")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)
