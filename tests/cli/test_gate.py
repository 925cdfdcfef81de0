"""The case that gates exist for: operators pass, the model does not, people go on all the same, and
every output goes on saying so."""

import json
import subprocess
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from tests.support.synthetic_dumps import SyntheticRun
from verify.cli.app import app

GATES = """
version = 1
ledger = "evidence"

[[gate]]
name = "operators"
kind = "tests"
command = ["python", "run_tests.py"]
report = "junit.xml"

[[gate]]
name = "identity"
kind = "tokens"
command = ["verify", "bisect", "runs/a", "runs/b", "--out", "out"]
report = "out/report.json"
"""
JUNIT = '<testsuite><testcase name="endpoint"/></testsuite>'
WRITES = f"open('junit.xml', 'w').write({JUNIT!r})\n"


def run(path, chosen):
    with SyntheticRun(path, {"s": [1, 2]}) as made, made.step():
        ids = made.add("tokens.in", [[1], [2]], "b t", dtype="int64")
        made.add("tokens.out", [[chosen]], "b t", rows=[("s", 1)], dtype="int64", inputs=[ids])


def git(*words):
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    (tmp_path / "gates.toml").write_text(GATES)
    (tmp_path / "run_tests.py").write_text(WRITES)
    (tmp_path / ".gitignore").write_text("evidence\nout\nruns\njunit.xml\n")
    git("add", ".")
    git("commit", "-qm", "one")
    run(tmp_path / "runs" / "a", 157)
    run(tmp_path / "runs" / "b", 158)
    return tmp_path


def verify(*arguments):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    return done.exit_code, done.output


def states():
    code, text = verify("gate", "status", "--format", "json")
    return code, {each["gate"]: each["state"] for each in json.loads(text)["gates"]}


def test_the_failed_gate_stays_failed(project):
    assert states() == (1, {"operators": "NOT RUN", "identity": "NOT RUN"})

    code, text = verify("gate", "run", "--gate", "operators")
    assert (code, "operators: PASS  1 tests pass" in text) == (0, True)
    assert states() == (1, {"operators": "PASS", "identity": "NOT RUN"})

    code, text = verify("gate", "run", "--gate", "identity")
    assert code == 1
    assert "identity: FAIL  s first differs at generated token 0: 157 against 158" in text
    assert states() == (1, {"operators": "PASS", "identity": "FAILED"})

    code, text = verify("gate", "waive", "identity", "--reason", "deadline", "--by", "somebody")
    assert (code, text) == (0, "identity: FAILED, waived by somebody: deadline\n")
    assert states() == (1, {"operators": "PASS", "identity": "FAILED, waived"})

    for form in ("text", "json", "junit", "github"):
        code, text = verify("gate", "status", "--format", form)
        assert code == 1, form
        assert "FAILED, waived" in text, form
        assert "deadline" in text, form
        assert "somebody" in text, form
    xml = ET.fromstring(verify("gate", "status", "--format", "junit")[1])
    assert (xml.get("tests"), xml.get("failures")) == ("2", "1")
    assert xml.find("testcase[@name='identity']/failure").get("type") == "FAILED, waived"

    # A new result is not waived by the old waiver, and a later PASS tells what came before.
    verify("gate", "run", "--gate", "identity")
    assert states() == (1, {"operators": "PASS", "identity": "FAILED"})
    for part in (project / "runs" / "b", project / "out"):
        subprocess.run(["rm", "-r", str(part)], check=True)
    run(project / "runs" / "b", 157)
    assert verify("gate", "run", "--gate", "identity")[0] == 0
    code, text = verify("gate", "status")
    assert code == 0
    assert "All 2 required gates pass." in text
    assert "2 of 3 runs did not pass" in text
    assert verify("ledger", "check", "evidence")[0] == 0


def test_results_belong_to_a_commit(project):
    verify("gate", "run")
    first = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert states() == (1, {"operators": "NOT RUN", "identity": "NOT RUN"})
    code, text = verify("gate", "status", "--commit", first[:10])
    assert code == 1
    assert "FAILED" in text
    done = CliRunner().invoke(app, ["gate", "status", "--commit", "nonsense"])
    assert "git knows no such commit" in str(done.exception)


def test_a_result_of_changed_files_does_not_vouch_for_the_commit(project):
    (project / "run_tests.py").write_text(WRITES + "# changed\n")
    assert verify("gate", "run", "--gate", "operators")[0] == 0
    assert states()[1]["operators"] == "PASS, with uncommitted changes"
    text = verify("gate", "status", "--allow-dirty", "--format", "json")[1]
    assert json.loads(text)["gates"][0]["state"] == "PASS"


def test_a_loosened_gate_does_not_inherit_a_pass(project):
    verify("gate", "run", "--gate", "operators")
    loose = GATES.replace('kind = "tests"', 'kind = "tests"\nmin_tests = 2')
    (project / "gates.toml").write_text(loose)
    assert states()[1]["operators"] == "PASS, for another definition"


@pytest.mark.parametrize(
    ("script", "result"),
    [
        (WRITES, "PASS"),
        (WRITES + "raise SystemExit(1)", "FAIL"),
        (WRITES + "raise SystemExit(2)", "ERROR"),
        ("pass", "ERROR"),
        ("open('junit.xml', 'w').write('<testsuite/>'); raise SystemExit(5)", "SKIPPED"),
        (WRITES + "import os; os.kill(os.getpid(), 9)", "ERROR"),
        (WRITES + "import time; time.sleep(60)", "ERROR"),
    ],
    ids=["passes", "fails", "broken", "writes nothing", "no test", "killed", "too slow"],
)
def test_how_a_command_may_end(project, script, result):
    (project / "junit.xml").write_text(JUNIT)  # an older result is never taken for a new one
    (project / "run_tests.py").write_text(script)
    (project / "gates.toml").write_text(GATES.replace('"junit.xml"', '"junit.xml"\ntimeout = 2'))
    code, text = verify("gate", "run", "--gate", "operators")
    assert f"operators: {result}" in text
    assert code == (0 if result == "PASS" else 1)


@pytest.mark.parametrize(
    ("code", "result"), [(0, "PASS"), (1, "FAIL"), (3, "SKIPPED"), (4, "ERROR")]
)
def test_a_command_by_its_exit_code(project, code, result):
    gate = f'[[gate]]\nname="c"\nkind="command"\ncommand=["python","-c","raise SystemExit({code})"]'
    (project / "gates.toml").write_text(f"version = 1\n{gate}\n")
    assert f"c: {result}" in verify("gate", "run")[1]


def test_what_a_command_prints_can_be_its_result(project):
    gate = """
    [[gate]]
    name = "same"
    kind = "env"
    command = ["verify", "env", "diff", "runs/a", "runs/b", "--json"]
    report = "out/env.json"
    stdout = true
    """
    (project / "gates.toml").write_text(f"version = 1\n{gate}")
    assert verify("gate", "run")[0] == 0
    subprocess.run(["rm", "-r", str(project / "runs" / "b")], check=True)
    code, text = verify("gate", "run")
    assert (code, "same: ERROR  the command ended with exit code 2" in text) == (1, True)


def test_a_program_that_is_not_there(project):
    (project / "gates.toml").write_text(GATES.replace('"python"', '"no-such-program"'))
    code, text = verify("gate", "run", "--gate", "operators")
    assert code == 1
    assert "operators: ERROR  no-such-program cannot be run" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["waive", "operators", "--reason", "r", "--by", "b"], "it was not run"),
        (["waive", "nothing", "--reason", "r", "--by", "b"], "no such gate"),
        (["waive", "operators", "--reason", " ", "--by", "b"], "a reason and a name"),
        (["run", "--gate", "nothing"], "no such gate"),
    ],
)
def test_what_cannot_be_done_is_refused(project, arguments, words):
    done = CliRunner().invoke(app, ["gate", *arguments])
    assert done.exit_code == 1
    assert words in str(done.exception)


def test_a_pass_cannot_be_waived(project):
    verify("gate", "run", "--gate", "operators")
    done = CliRunner().invoke(app, ["gate", "waive", "operators", "--reason", "r", "--by", "b"])
    assert "it passed" in str(done.exception)


def test_tampering_closes_every_gate_and_is_found(project):
    (project / "gates.toml").write_text(GATES)
    verify("gate", "run", "--gate", "operators")
    verify("gate", "run", "--gate", "identity")
    entries = project / "evidence" / "entries.jsonl"
    whole = entries.read_bytes()
    lines = whole.splitlines(keepends=True)
    edits = [
        whole.replace(b'"FAIL"', b'"PASS"'), lines[1], lines[0], b"".join(reversed(lines)),
        whole.replace(b'{"artifacts"', b'{"extra":1,"artifacts"', 1), whole + lines[1],
    ]  # fmt: skip
    for edit in edits:
        assert edit != whole
        entries.write_bytes(edit)
        assert verify("ledger", "check", "evidence")[0] == 1
        done = CliRunner().invoke(app, ["gate", "status"])
        assert "the ledger is not whole" in str(done.exception)
    entries.write_bytes(whole)
    stored = sorted((project / "evidence" / "artifacts").glob("*/*"))
    names = {a["name"] for line in lines for a in json.loads(line)["artifacts"]}
    assert names == {"gates.toml", "junit.xml", "report.json", "manifest.json"}
    for path in stored:
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        assert verify("ledger", "check", "evidence")[0] == 1, path
        path.write_bytes(kept)
    assert verify("ledger", "check", "evidence")[0] == 0


def test_names_cannot_break_the_formats(project):
    verify("gate", "run", "--gate", "identity")
    reason = "<b>|`\n]]>\x1b[31m&\x00"
    verify("gate", "waive", "identity", "--reason", reason, "--by", "a|b")
    ET.fromstring(verify("gate", "status", "--format", "junit")[1])
    markdown = verify("gate", "status", "--format", "github")[1]
    (row,) = [line for line in markdown.splitlines() if line.startswith("| identity")]
    assert row.replace("\\|", "").count("|") == 5
    assert "\x1b" not in verify("gate", "status")[1]
