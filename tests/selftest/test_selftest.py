"""The tool on trial with a small part of the faults; docs/detection.md has all of them."""

import msgspec
import pytest
from typer.testing import CliRunner

from verify.cli.app import app
from verify.errors import ArgumentError, DumpError
from verify.noise.intervals import rule_of_three
from verify.replay import checker as replay_checker
from verify.selftest.rates import conclude, rate
from verify.selftest.result import Trial
from verify.selftest.run import TRIALS, selftest
from verify.selftest.sizes import RELATIVE, Size, resized
from verify.selftest.subject import Subject
from verify.selftest.trials import FAULTS, plan


@pytest.mark.slow
def test_faults_are_found_and_innocents_are_not_accused(tmp_path):
    result = selftest("toy", kinds=["K21", "K02"], sizes=["gross"], innocents=2, out=tmp_path)
    assert result.missed == [] and result.exit_code == 0
    assert result.innocent.trials == 2 and result.innocent.hits == 0
    again = selftest("toy", kinds=["K21", "K02"], sizes=["gross"], innocents=2, out=tmp_path)
    assert again.trials == result.trials  # taken from the file, not run again


@pytest.mark.slow
def test_a_tool_that_excuses_everything_fails_the_trial(monkeypatch):
    verdicts = dict.fromkeys(replay_checker._VERDICTS, replay_checker.Verdict.ROUNDING)
    monkeypatch.setattr(replay_checker, "_VERDICTS", verdicts)
    result = selftest("toy", kinds=["K21"], sizes=["moderate"])
    assert result.exit_code == 1 and any("found" in bar for bar in result.missed)


@pytest.mark.slow
def test_a_tool_that_accuses_everything_fails_the_trial(monkeypatch):
    verdicts = dict.fromkeys(replay_checker._VERDICTS, replay_checker.Verdict.DEFECT)
    monkeypatch.setattr(replay_checker, "_VERDICTS", verdicts)
    result = selftest("toy", kinds=["none"], innocents=2)
    assert result.exit_code == 1 and result.innocent.hits > 0


def test_every_kind_that_a_decoder_can_have_is_planned(tmp_path):
    kinds = {fault.kind for fault in FAULTS}
    # Sums in another order (K01) are the innocent pairs.
    wanted = "K02 K03 K04 K05 K06 K08 K09 K11 K12 K13 K14 K15 K19 K21 K23"
    assert kinds == set(wanted.split())
    planned = [each.trial for each in plan(Subject("toy", tmp_path), innocents=9)]
    assert len({trial.key for trial in planned}) == len(planned)
    assert {t.size for t in planned if t.kind == "K04"} == set(Size)
    assert {t.on_top for t in planned if t.kind == "K09"} == {True, False}
    assert all(t.layer > 0 for t in planned if t.on_top)


@pytest.mark.parametrize("size", list(RELATIVE))
def test_sizes_are_what_they_say(size):
    import torch

    true = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    wrong = true.clone()
    wrong[2] += 5.0
    planted = resized(true, wrong, size)
    assert torch.equal(planted[:2], true[:2])
    change = (planted[2] - true[2]).norm() / true[2].norm()
    # the sum is rounded to float32 once more, 2^-24 of each element
    assert abs(float(change) / RELATIVE[size] - 1) < 1e-2


def test_rates_have_exact_intervals():
    assert rate(0, 200).high == pytest.approx(1 - 0.025 ** (1 / 200))
    assert rate(3, 10).low == pytest.approx(0.0667, abs=1e-4)
    assert rule_of_three(200) == pytest.approx(0.0149, abs=1e-4)
    assert (rate(0, 0).low, rate(0, 0).high) == (0.0, 1.0)


def trial(**changes):
    told = {"kind": "K04", "name": "gain", "size": "gross", "found": True, "right_tap": True}
    return msgspec.convert({**told, "right_verdict": True, **changes}, Trial)


def test_one_miss_in_ten_breaks_the_demand_and_one_in_a_hundred_does_not():
    assert conclude("toy", [trial() for _ in range(99)] + [trial(found=False)]).missed == []
    missed = conclude("toy", [trial() for _ in range(9)] + [trial(found=False)]).missed
    assert len(missed) == 1 and "found: 9 of 10" in missed[0]


def test_one_false_blame_breaks_the_demand_wherever_it_happens():
    for wrong in (trial(false_blame=True), trial(size="tiny", false_blame=True),
                  trial(kind="innocent", false_blame=True)):  # fmt: skip
        assert conclude("toy", [trial() for _ in range(99)] + [wrong]).exit_code == 1


def test_faults_that_changed_nothing_are_not_counted_as_found_or_missed():
    result = conclude("toy", [trial(), trial(changed=False, found=False)])
    assert result.unplanted == 1 and result.missed == []


def test_a_tool_that_falls_over_is_counted():
    assert conclude("toy", [trial(), trial(error="KeyError: 3")]).exit_code == 1


@pytest.mark.parametrize("options", [["--kind", "K99"], ["--size", "huge"], ["--kind", "none"]])
def test_nonsense_is_refused(options):
    with pytest.raises(ArgumentError):
        CliRunner().invoke(app, ["selftest", *options], catch_exceptions=False)


def test_trials_of_something_else_are_refused(tmp_path):
    (tmp_path / TRIALS).write_text('{"kind": 3}\n')
    with pytest.raises(DumpError, match="not the trials"):
        selftest("toy", kinds=["K21"], sizes=["gross"], out=tmp_path)


def test_a_sample_is_drawn_from_all_faults_and_keeps_the_innocents(tmp_path):
    from verify.selftest.run import _drawn

    planned = list(plan(Subject("toy", tmp_path), innocents=3))
    kept = [each.trial for each in _drawn(planned, 10, seed=1)]
    assert len(kept) == 13 and len({t.kind for t in kept}) > 3
    assert kept == [each.trial for each in _drawn(planned, 10, seed=1)]


def test_a_fault_that_meets_no_case_is_no_fault():
    import torch

    from verify.selftest.sizes import METER

    METER.reset()
    assert not METER.idle  # nobody asked
    x = torch.ones(2, 3)
    resized(x, x.clone(), Size.GROSS)
    assert METER.idle
    resized(x, x + 1, Size.TINY)
    assert not METER.idle
