"""From findings to the verdict and the exit code."""

import pytest

from verify.bisect.result import Finding, Verdict
from verify.bisect.verdict import exit_code, parse_accept, worst
from verify.compare.exit_codes import for_git_bisect
from verify.errors import ArgumentError

V = Verdict


def findings(*verdicts):
    return [Finding(verdict=v, title="", reasons=[]) for v in verdicts]


@pytest.mark.parametrize(
    ("found", "accept", "verdict", "code"),
    [
        ([], [], V.IDENTICAL, 0),
        ([V.ROUNDING], [], V.ROUNDING, 0),
        ([V.NOT_COMPARABLE], [], V.NOT_COMPARABLE, 3),
        ([V.ROUNDING, V.NOT_COMPARABLE], [], V.NOT_COMPARABLE, 3),
        ([V.UNRESOLVED], [], V.UNRESOLVED, 1),
        ([V.ROUNDING, V.INCOMPLETE], [], V.INCOMPLETE, 3),
        ([V.ROUNDING, V.INCOMPLETE], [V.INCOMPLETE], V.INCOMPLETE, 0),
        ([V.INCOMPLETE, V.NOT_COMPARABLE], [V.INCOMPLETE], V.NOT_COMPARABLE, 3),
        ([V.UNRESOLVED, V.NOT_COMPARABLE], [], V.UNRESOLVED, 1),
        ([V.POST_LOGITS], [], V.POST_LOGITS, 1),
        ([V.PRECISION, V.UNRESOLVED], [], V.PRECISION, 1),
        ([V.PRECISION], [V.PRECISION], V.PRECISION, 0),
        ([V.PRECISION, V.UNRESOLVED], [V.PRECISION], V.PRECISION, 1),
        ([V.PRECISION, V.NOT_COMPARABLE], [V.PRECISION], V.PRECISION, 3),
        ([V.OVERFLOW, V.DEFECT, V.PRECISION], [V.PRECISION], V.DEFECT, 1),
        ([V.NON_REPEATABLE], [], V.NON_REPEATABLE, 1),
    ],
)
def test_table(found, accept, verdict, code):
    assert worst(findings(*found)) is verdict
    assert exit_code(findings(*found), accept, fails_on_flip=False) == code


def test_a_flip_fails_an_explained_run_when_asked_to():
    assert exit_code(findings(V.ROUNDING), [], fails_on_flip=True) == 1


def test_names_of_verdicts_are_read_in_either_case():
    assert parse_accept(["precision", "UNRESOLVED"]) == [V.PRECISION, V.UNRESOLVED]


@pytest.mark.parametrize("name", ["NOT_COMPARABLE", "IDENTICAL", "fine"])
def test_what_cannot_be_accepted_is_refused(name):
    with pytest.raises(ArgumentError, match=r"cannot be accepted[\s\S]*--accept"):
        parse_accept([name])


@pytest.mark.parametrize(("code", "mapped"), [(0, 0), (1, 1), (2, 125), (3, 125)])
def test_codes_for_git_bisect(code, mapped):
    assert for_git_bisect(code) == mapped
