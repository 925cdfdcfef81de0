"""Repeats of one configuration: what varies, how much, and what that does to a verdict."""

import itertools
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from tests.support.toy_pairs import Side, record
from verify.bisect.result import Verdict
from verify.bisect.run import bisect
from verify.cli.app import app
from verify.errors import ArgumentError, DumpError, DumpExistsError, NotComparableError
from verify.noise.apply import apply_noise
from verify.noise.intervals import clopper_pearson, rule_of_three
from verify.noise.measure import REPEATS, measure
from verify.noise.repeat import plan
from verify.noise.store import NAME, read_noise
from verify.report.json import to_json
from verify.selftest.inject import changed_core, changed_module


def racing(every, share=0.5):
    """A core that loses a part of its sum at some calls, whatever its input is."""
    calls = itertools.count()

    @contextmanager
    def plant(model):
        def change(core):
            return core.out * share if next(calls) % every == every - 1 else core.out

        with changed_core(model, {1}, change):
            yield

    return plant


def repeats(folder, count, plant=None):
    side = Side() if plant is None else Side(plant=plant)
    return [record(folder / f"run-{i}", side).dump for i in range(count)]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    return repeats(tmp_path_factory.mktemp("quiet"), 3)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return repeats(tmp_path_factory.mktemp("noisy"), 3, racing(4))


def test_equal_repeats_say_how_many_they_are(quiet):
    noise = measure(quiet[0], {REPEATS: quiet[1:]})
    assert noise.repeatable and noise.exit_code == 0
    assert "3 runs are equal in every bit" in noise.summary
    assert f"{rule_of_three(2):.2g}" in noise.summary


def test_a_race_is_seen_at_its_core_first(noisy):
    noise = measure(noisy[0], {REPEATS: noisy[1:]})
    assert not noise.repeatable and noise.exit_code == 1
    first = noise.repeats.taps[0]
    assert first.tap == "model.layers.1.self_attn.attn.out"
    assert first.differing_runs == 2 and first.max_ulp > 0 and first.relative_l2 > 0


def test_variations_are_no_repeats(quiet, noisy):
    noise = measure(quiet[0], {REPEATS: quiet[1:], "threads 2": noisy[1:2]})
    assert noise.repeatable and not noise.groups[1].equal


def other(folder):
    """A run of B with a defect in layer 0, on A's tokens."""

    @contextmanager
    def plant(model):
        module = model.model.layers[0].mlp.down_proj
        with changed_module(module, lambda x, out: out * 1.5):
            yield

    return record(folder / "other", Side(plant=plant)).dump


def test_nothing_is_blamed_on_a_side_that_does_not_repeat(quiet, noisy, tmp_path):
    b = other(tmp_path)
    accused = bisect(quiet[0], b)
    noise = measure(noisy[0], {REPEATS: noisy[1:]})  # of the same configuration as both
    result = apply_noise(accused, quiet[0], b, [noise])
    verdicts = [finding.verdict for finding in result.findings]
    assert result.verdict is Verdict.NON_REPEATABLE and result.exit_code == 1
    assert Verdict.DEFECT not in verdicts
    assert "does not repeat" in result.findings[0].title


def test_a_side_that_repeats_says_so_and_changes_no_verdict(quiet, tmp_path):
    b = other(tmp_path)
    before = bisect(quiet[0], b)
    after = apply_noise(before, quiet[0], b, [measure(quiet[0], {REPEATS: quiet[1:]})])
    assert (after.verdict, after.exit_code) == (before.verdict, before.exit_code)
    assert any("repeats itself" in finding.title for finding in after.findings)


def test_noise_of_another_configuration_is_refused(quiet, tmp_path):
    elsewhere = record(tmp_path / "bf16", Side(dtype="bf16")).dump
    noise = measure(quiet[0], {REPEATS: quiet[1:]})
    result = bisect(elsewhere, elsewhere)
    with pytest.raises(ArgumentError, match="another configuration"):
        apply_noise(result, elsewhere, elsewhere, [noise])


def test_one_run_or_another_prompt_is_no_repeat(quiet, tmp_path):
    with pytest.raises(ArgumentError, match="needs repeats"):
        measure(quiet[0], {REPEATS: []})
    asked = record(tmp_path / "x", Side(options={"prompts": ("Another prompt.",)})).dump
    with pytest.raises(NotComparableError, match="other prompts"):
        measure(quiet[0], {REPEATS: [asked]})


def test_the_stored_result_is_read_back(quiet, noisy, tmp_path):
    noise = measure(noisy[0], {REPEATS: noisy[1:]})
    (tmp_path / NAME).write_bytes(to_json(noise))
    assert read_noise(tmp_path) == noise
    (tmp_path / NAME).write_text("{}")
    with pytest.raises(DumpError, match="no noise result"):
        read_noise(tmp_path)


def test_the_command_takes_recorded_runs(quiet, tmp_path):
    paths = [str(dump.path) for dump in quiet]
    done = CliRunner().invoke(app, ["noise", *paths, "--out", str(tmp_path)])
    assert done.exit_code == 0 and "REPEATABLE" in done.output
    assert read_noise(tmp_path).repeatable


def test_plans_name_what_changes():
    planned = plan(["-p", "x"], 2, ["threads=1,2"])
    assert [(p.group, p.name) for p in planned] == [
        ("repeats", "run-0"), ("repeats", "run-1"), ("threads 1", "threads-1"),
        ("threads 2", "threads-2"),
    ]  # fmt: skip
    assert planned[-1].arguments[-2:] == ("--threads", "2")


@pytest.mark.parametrize(
    ("arguments", "runs", "vary"),
    [(["--out", "x"], 2, []), (["-p", "x"], 1, []), (["-p", "x"], 2, ["tokens=3"])],
)
def test_plans_that_make_no_sense_are_refused(arguments, runs, vary):
    with pytest.raises(ArgumentError):
        plan(arguments, runs, vary)


def test_a_place_that_holds_something_is_not_written_to(tmp_path):
    from verify.noise.repeat import capture_all

    (tmp_path / "x").write_text("mine")
    with pytest.raises(DumpExistsError):
        capture_all(plan(["-p", "x"], 2, []), tmp_path)


def test_intervals_are_exact():
    assert clopper_pearson(0, 20)[1] == pytest.approx(0.1684, abs=1e-4)
    assert clopper_pearson(2, 20) == pytest.approx((0.0123, 0.3170), abs=1e-4)
    assert clopper_pearson(0, 0) == (0.0, 1.0)


def test_bisect_takes_noise_at_the_command_line(quiet, noisy, tmp_path):
    paths = [str(dump.path) for dump in noisy]
    CliRunner().invoke(app, ["noise", *paths, "--out", str(tmp_path)])
    pair = [paths[0], paths[1]]
    done = CliRunner().invoke(app, ["bisect", *pair, "--noise", str(tmp_path)])
    assert done.exit_code == 1 and done.output.startswith("NON_REPEATABLE")
