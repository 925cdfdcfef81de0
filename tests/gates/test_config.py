"""gates.toml is checked whole before anything runs."""

import pytest

from verify.errors import UsageError
from verify.gates.config import definition, load

GOOD = """
version = 1
[[gate]]
name = "operators"
kind = "tests"
report = "junit.xml"
[[gate]]
name = "identity"
kind = "tokens"
report = "out/report.json"
required = false
"""


def write(tmp_path, text):
    path = tmp_path / "gates.toml"
    path.write_text(text)
    return path


def test_a_good_file(tmp_path):
    gates = load(write(tmp_path, GOOD))
    assert [(g.name, g.kind, g.required) for g in gates.gate] == [
        ("operators", "tests", True), ("identity", "tokens", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version = 1", "version = 2", "version"),
        ("version = 1", "", "version"),
        ("version = 1", "version = 1\nspeed = 3", "unknown field `speed`"),
        ('kind = "tests"', 'kind = "vibes"', "vibes"),
        ('kind = "tests"', 'kind = "tests"\nmin_test = 3', "unknown field `min_test`"),
        ('kind = "tests"', 'kind = "tests"\nmin_tests = "3"', "gate operators, key min_tests"),
        ('kind = "tests"', 'kind = "tests"\nmin_tests = 0', "min_tests is at least 1"),
        ('kind = "tests"', 'kind = "tests"\ncommand = "pytest -q"', "operators, key command"),
        ('kind = "tests"', 'kind = "tests"\nstdout = true', "stdout needs a command"),
        ('kind = "tests"', 'kind = "speed"', "max_ratio"),
        ('kind = "tests"', 'kind = "command"', "needs a command"),
        ('report = "junit.xml"', "", "needs a report"),
        ('name = "identity"', 'name = "operators"', "stands twice"),
        ('name = "identity"', 'name = "a b"', "letters"),
        ('kind = "tests"', 'kind = "tests"\nrequired = false', "no gate is required"),
        ('kind = "tests"', 'kind = "tests"\ntimeout = 0', "timeout"),
        ("version = 1", "version = ", "not TOML"),
        (GOOD, "version = 1\ngate = []", "no gate is required"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path, old, new, words):
    with pytest.raises(UsageError) as error:
        load(write(tmp_path, GOOD.replace(old, new, 1)))
    assert words in str(error.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(UsageError, match="the gates cannot be read"):
        load(tmp_path / "gates.toml")


def test_the_definition_follows_every_key(tmp_path):
    first = load(write(tmp_path, GOOD)).gate[0]
    loosened = load(write(tmp_path, GOOD.replace('"junit.xml"', '"other.xml"'))).gate[0]
    assert definition(first) != definition(loosened)
    assert definition(first) == definition(load(write(tmp_path, GOOD)).gate[0])
