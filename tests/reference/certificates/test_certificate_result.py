"""The shared certificate type: severity, refusal to conclude from nothing, reasons."""

import msgspec
import pytest

from verify.bounds import Bound
from verify.reference.certificates.result import Certificate, Check, Outcome, conclude, worst

LIMIT = Bound(1.0, "an example")


def make_check(statistic: float, **options) -> Check:
    return Check(name="size", statistic=statistic, limit=LIMIT, passed=statistic <= 1.0, **options)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], Outcome.EXPLAINED),
        ([Outcome.EXPLAINED, Outcome.PRECISION], Outcome.PRECISION),
        ([Outcome.SUSPECT, Outcome.PRECISION], Outcome.SUSPECT),
        ([Outcome.SUSPECT, Outcome.DEFECT], Outcome.DEFECT),
    ],
)
def test_worst_follows_the_order_of_severity(outcomes, expected):
    assert worst(outcomes) is expected


def test_no_check_is_no_certificate():
    with pytest.raises(ValueError, match="at least one check"):
        conclude("attention", "v100", [])


def test_a_broken_check_names_itself_and_its_limit():
    certificate = conclude("attention", "v100", [make_check(2.0, detail="head 3")])
    assert certificate.outcome is Outcome.DEFECT
    assert certificate.reasons == ("size: 2 exceeds 1 (head 3); the limit is an example",)
    assert [check.name for check in certificate.failed] == ["size"]


def test_a_check_decides_how_bad_its_failure_is():
    broken = make_check(2.0, if_broken=Outcome.SUSPECT)
    assert conclude("attention", "v100", [broken]).outcome is Outcome.SUSPECT


def test_conventions_make_precision_unless_something_is_broken():
    fine = conclude("attention", "A against B", [make_check(0.5)], conventions=["mass"])
    assert fine.outcome is Outcome.PRECISION
    broken = conclude("attention", "A against B", [make_check(2.0)], conventions=["mass"])
    assert broken.outcome is Outcome.DEFECT


def test_a_certificate_survives_json():
    certificate = conclude("attention", "v100", [make_check(2.0)], numbers={"sigma": 0.5})
    assert msgspec.json.decode(msgspec.json.encode(certificate), type=Certificate) == certificate
