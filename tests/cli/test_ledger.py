"""`verify ledger`: adding, showing, checking, merging."""

import json

import pytest
from typer.testing import CliRunner

from verify.cli.app import app


def verify(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["ledger", *map(str, arguments)])


@pytest.fixture
def ledger(tmp_path):
    file = tmp_path / "report.txt"
    file.write_text("numbers\n")
    done = verify("add", tmp_path / "l", "--text", "first", "--artifact", file)
    assert done.exit_code == 0
    verify("add", tmp_path / "l", "--kind", "speed", "--data", '{"ratio": 0.98}')
    return tmp_path / "l"


def test_what_was_added_is_shown(ledger):
    text = verify("show", ledger).output
    assert '"text":"first"' in text
    assert "report.txt" in text
    (entry,) = json.loads(verify("show", ledger, "--kind", "speed", "--json").output)
    assert entry["data"] == {"ratio": 0.98}


def test_a_whole_ledger_checks_out_and_names_its_last_hash(ledger):
    found = json.loads(verify("check", ledger, "--json").output)
    last = json.loads(verify("show", ledger, "--json").output)[-1]["hash"]
    assert found == {"entries": 2, "artifacts": 1, "last": last, "problems": []}
    assert last in verify("check", ledger).output


def test_a_ledger_that_was_written_anew_lacks_the_noted_hash(ledger, tmp_path):
    last = json.loads(verify("check", ledger, "--json").output)["last"]
    assert verify("check", ledger, "--last", last).exit_code == 0
    verify("add", tmp_path / "other", "--text", "first")
    done = verify("check", tmp_path / "other", "--last", last)
    assert done.exit_code == 1
    assert "written anew" in done.output


def test_an_edited_line_is_named(ledger):
    path = ledger / "entries.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.98", b"0.88"))
    done = verify("check", ledger)
    assert done.exit_code == 1
    assert "line 2: edited" in done.output


def test_an_added_field_is_an_edit(ledger):
    path = ledger / "entries.jsonl"
    path.write_bytes(path.read_bytes().replace(b"{", b'{"note":"x",', 1))
    assert "line 1: edited" in verify("check", ledger).output


def test_merging_twice_adds_once(ledger, tmp_path):
    verify("add", tmp_path / "other", "--text", "theirs")
    assert "1 entries added" in verify("merge", ledger, tmp_path / "other").output
    assert "0 entries added" in verify("merge", ledger, tmp_path / "other").output
    assert verify("check", ledger).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "has to say something"),
        (["--data", "[]"], "not a JSON object"),
        (["--data", "{"], "not JSON"),
        (["--kind", "gate", "--text", "PASS"], "its own command"),
        (["--artifact", "nowhere"], "has to be a file"),
    ],
)
def test_what_cannot_be_added(tmp_path, arguments, words):
    done = verify("add", tmp_path / "l", *arguments)
    assert words in str(done.exception)


def test_an_artifact_with_a_secret_is_stored_without_it(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("used ghp_" + "a1B2" * 9 + " to fetch\n")
    verify("add", tmp_path / "l", "--artifact", file)
    (entry,) = json.loads(verify("show", tmp_path / "l", "--json").output)
    assert entry["artifacts"][0]["redacted"] is True
    (stored,) = (tmp_path / "l" / "artifacts").glob("*/*")
    assert stored.read_text() == "used [redacted] to fetch\n"
    assert verify("check", tmp_path / "l").exit_code == 0
