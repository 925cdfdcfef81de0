"""Planted faults are found, and named with their place; 1 % of the published benchmark."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from verify.reference.certificates.attention import certify_attention
from verify.reference.certificates.result import Outcome
from verify.reference.replay.arithmetic import tensor_core_prefill

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import detection_attention

        yield detection_attention
    finally:
        sys.path.remove(str(BENCHMARKS))


def planted(benchmark, name):
    return next(fault for fault in benchmark.FAULTS if fault.name == name)


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize(
    "name",
    [
        "64-key tile dropped",
        "64-key tile doubled",
        "planted key dropped",
        "mass unrounded, declared rounded; equal scores",
        "scale off by 2^-8",
        "parts merged in base 2",
        "FP16 accumulation",
    ],
)
@pytest.mark.parametrize("device", ["V100", "H200"])
def test_faults_are_found_and_located(benchmark, device, name, mean):
    fault = planted(benchmark, name)
    splits = 1 if name == "FP16 accumulation" else fault.splits[-1]  # 32 keys add up well
    cell = benchmark.Cell(device, splits, mean)
    found, _ = benchmark._one_call(fault, cell, 2048, 0, rows=2, dim=64)
    assert any(one.outcome is Outcome.DEFECT for one in found)
    reasons = [reason for one in found for reason in one.reasons]
    assert any(fault.located in r and "explained by" in r for r in reasons) or not fault.located


@pytest.mark.parametrize("name", ["newest key lost", "hidden key seen"])
def test_a_mask_off_by_one_is_found_where_the_key_matters(benchmark, name):
    """A key of average weight is visible at 512 keys; beyond, only planted keys (C0) show it."""
    fault = planted(benchmark, f"mask off by one: {name}")
    cell = benchmark.Cell("H200", 1, 0.0)
    found, _ = benchmark._one_call(fault, cell, 512, 0, rows=4, dim=32)
    assert any(one.outcome is Outcome.DEFECT for one in found)
    assert any(fault.located in reason for one in found for reason in one.reasons)


def test_the_wrong_mass_on_ordinary_scores_cannot_be_seen(benchmark):
    """It shifts the output by 0.006 half ulps: the table says so, and here it is held to it."""
    fault = planted(benchmark, "the same; ordinary scores")
    found, _ = benchmark._one_call(fault, benchmark.Cell("H200", 1, 1.0), 2048, 0, rows=4, dim=32)
    assert all(one.outcome is Outcome.EXPLAINED for one in found)


def test_no_false_alarm_on_a_small_campaign(benchmark, monkeypatch):
    """8 kinds, up to 65536 keys in the benchmark and 2048 here, 200 outputs."""
    monkeypatch.setattr(benchmark, "PLAN", {512: (32, 1), 2048: (16, 1)})
    monkeypatch.setattr(benchmark, "ROWS", 12)
    lines = list(benchmark.false_alarms(benchmark.CELLS, 1.0))
    assert sum(line["outputs"] for line in lines) == 192
    assert sum(line["defect"] + line["suspect"] for line in lines) == 0
    assert all(0.4 < line["chi2"] < 1.3 for line in lines)  # the noise model fits its data


def test_the_tables_are_written(benchmark):
    line = {
        "device": "V100", "splits": 1, "mean": 0.0, "keys": 512, "dim": 64, "outputs": 25,
        "defect": 0, "suspect": 0, "chi2": 1.0, "drift_h": -0.5,
        "worst": {"running bound (C2)": 0.5, "signed drift": 1.0, "tile filter": 3.0,
                  "key filter": 4.0},
    }  # fmt: skip
    fault = {
        "fault": "FP16 accumulation", "keys": 512, "mean": 0.0, "outputs": 8, "defect": 8,
        "suspect": 0, "bound_alone": 4, "calls": 1, "calls_found": 1, "calls_located": None,
        "calls_beyond_1e-3": 1,
    }  # fmt: skip
    text = benchmark.markdown({"seconds": 9.0, "false_alarms": [line], "faults": [fault]})
    assert "**25 outputs: 0 false DEFECT, 0 false SUSPECT.**" in text
    assert "| V100 | 1 | 0 | 512 | 64 | 25 | 0 | 0 | 1.00 | -0.50 | 0.50 | 4.0 |" in text
    assert "| FP16 accumulation | 512 | 0 | 8/8 | 0 | 4 | 1/1 | - | 1/1 |" in text


RULE = tensor_core_prefill("sm_90")


def test_reports_name_the_row_and_the_tile(problem, simulate):
    inputs = problem(keys=1024, rows=3)
    index = torch.arange(1024)
    fewer = replace(inputs, k=inputs.k[:, index != 700], v=inputs.v[:, index != 700])
    output = simulate(inputs, RULE)
    output[1] = simulate(fewer, RULE)[1]
    found = certify_attention(output, inputs, RULE, inputs.all_rows())
    assert found.outcome is Outcome.DEFECT
    assert "batch 0 token 1 head 0: explained by key 700 dropped: what is left is rounding" in (
        found.reasons
    )
    assert found.reasons[-1] == "1 of 3 rows are not explained"


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_a_defect(problem, simulate, value):
    inputs = problem(rows=2)
    output = simulate(inputs, RULE)
    output[0, 5] = value
    found = certify_attention(output, inputs, RULE, inputs.all_rows())
    assert found.outcome is Outcome.DEFECT
    assert "elements [5]" in found.reasons[0]


def test_a_value_that_is_not_finite_must_show(problem, simulate):
    """A visible NaN makes the exact answer NaN; an output that hides it has not read it."""
    inputs = problem(rows=2)
    output = simulate(inputs, RULE)
    inputs.v[0, 100, 0, 3] = torch.nan
    found = certify_attention(output, inputs, RULE, inputs.all_rows())
    assert found.outcome is Outcome.DEFECT
    output[:, 3] = torch.nan
    assert certify_attention(output, inputs, RULE, inputs.all_rows()).outcome is Outcome.EXPLAINED


def test_small_systematic_errors_are_suspect_or_worse(problem, simulate):
    """Half a percent of a tile's values is below the running bound, and seen all the same."""
    inputs = problem(keys=4096, rows=8)
    heavier = replace(inputs, v=inputs.v.clone())
    heavier.v[:, 640:704] *= 1.005
    found = certify_attention(simulate(heavier, RULE), inputs, RULE, inputs.all_rows())
    assert found.outcome is not Outcome.EXPLAINED
    bound = next(check for check in found.checks if check.name == "running bound (C2)")
    assert bound.passed
