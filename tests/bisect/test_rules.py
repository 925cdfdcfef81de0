"""The table of verdicts: in the code, in the documentation, and each row by a case that reaches it."""

import re
from pathlib import Path

import pytest

from verify.bisect.result import Verdict
from verify.bisect.rules import RULES, Measured, Subject, decide
from verify.bisect.verdict import SEVERITY, exit_code

DOCUMENT = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text("utf-8")
PLACE = Subject.PLACE

CASES = [
    ({"subject": Subject.RUNS}, 0),
    ({"subject": Subject.RECORDING}, 1),
    ({"subject": Subject.ROWS}, 2),
    ({"subject": Subject.REPEATS}, 3),
    ({"subject": Subject.CHOICE}, 4),
    ({"subject": PLACE, "local": Verdict.DEFECT}, 5),
    ({"subject": PLACE, "local": Verdict.DEFECT, "infinite": True}, 5),
    ({"subject": PLACE, "infinite": True}, 6),
    ({"subject": PLACE, "local": Verdict.ROUNDING, "infinite": True}, 6),
    ({"subject": PLACE, "local": Verdict.ROUNDING}, 7),
    ({"subject": PLACE, "exact_cast": True, "declared": True}, 8),
    ({"subject": PLACE, "local": Verdict.DEFECT, "exact_cast": True, "declared": True}, 8),
    ({"subject": PLACE, "local": Verdict.PRECISION}, 9),
    ({"subject": PLACE}, 10),
    ({"subject": PLACE, "exact_cast": True}, 10),
    ({"subject": PLACE, "local": Verdict.DEFECT, "exact_cast": True}, 10),
    ({"subject": PLACE, "local": Verdict.UNRESOLVED}, 10),
    ({"subject": Subject.REST}, 10),
    ({"subject": Subject.WEIGHTS}, 10),
]


@pytest.mark.parametrize(("facts", "row"), CASES)
def test_the_first_row_that_holds_decides(facts, row):
    measured = Measured(**facts)
    assert next(i for i, rule in enumerate(RULES) if rule.holds(measured)) == row
    assert decide(measured) is RULES[row].verdict


def test_every_row_is_reached():
    assert {row for _, row in CASES} == set(range(len(RULES)))


def rows_below(heading):
    after = DOCUMENT[DOCUMENT.index(heading) :]
    table = re.match(r"\|.*\n\|[-|]+\n((?:\|.*\n)+)", after)
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in table.group(1).strip().splitlines()]  # fmt: skip


def test_the_documented_table_is_the_one_of_the_code():
    assert rows_below("| measured | verdict |") == [[rule.when, rule.verdict] for rule in RULES]


def test_the_documented_severities_and_exit_codes_are_those_of_the_code():
    rows = rows_below("| verdict, from harmless to worst | exit |")
    assert [row[0].split(":")[0] for row in rows] == [str(verdict) for verdict in SEVERITY]
    from verify.bisect.result import Finding

    for verdict, (_, code) in zip(SEVERITY, rows, strict=True):
        findings = [Finding(verdict=verdict, title="", reasons=[])]
        assert exit_code(findings, (), fails_on_flip=False) == int(code)
