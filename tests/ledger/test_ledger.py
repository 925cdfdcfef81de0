from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from verify.errors import CorruptDumpError, DumpError
from verify.ledger import artifacts
from verify.ledger.check import check
from verify.ledger.merge import merge
from verify.ledger.store import Ledger


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger")
    report = tmp_path / "report.json"
    report.write_text('{"verdict": "DEFECT"}')
    made.append("gate", {"gate": "identity", "result": "FAIL"}, [report])
    made.append("waiver", {"gate": "identity", "reason": "deadline", "by": "someone"})
    made.append("gate", {"gate": "operators", "result": "PASS"})
    return made


def rewrite(ledger, change):
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(b"".join(change(lines)))


def test_a_fresh_ledger_is_whole(ledger):
    found = check(ledger)
    assert (found.entries, found.artifacts, found.problems) == (3, 1, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: [x[0].replace(b"FAIL", b"PASS"), *x[1:]], "line 1: edited"),
        (lambda x: [x[0], x[2]], "line 2: does not follow"),
        (lambda x: [x[1], x[0], x[2]], "line 1: does not follow"),
        (lambda x: x[:2], "1 entries at the end are missing"),
        (lambda x: [], "3 entries at the end are missing"),
        (lambda x: [x[0], b"not json\n", *x[2:]], "line 2: not an entry"),
        (lambda x: [*x, x[2]], "line 4: does not follow"),
    ],
    ids=["edited", "dropped", "reordered", "shortened", "emptied", "garbage", "repeated"],
)
def test_tampering_with_a_line_is_found(ledger, change, words):
    rewrite(ledger, change)
    assert any(words in problem for problem in check(ledger).problems)


def test_an_edit_with_its_own_hash_made_to_fit_breaks_the_next_link(ledger):
    entries = list(ledger.entries())
    forged = type(entries[0])(
        **{**{f: getattr(entries[0], f) for f in entries[0].__struct_fields__}, "kind": "note"}
    ).sealed()
    from verify.ledger.entry import encode

    rewrite(ledger, lambda x: [encode(forged), *x[1:]])
    assert any("line 2: does not follow" in problem for problem in check(ledger).problems)


@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_a_changed_or_missing_artifact_is_found(ledger, fault):
    (artifact,) = next(ledger.entries()).artifacts
    path = artifacts.path_of(ledger.folder, artifact.sha256)
    path.write_text("{}") if fault == "changed" else path.unlink()
    assert any(fault in problem for problem in check(ledger).problems)


def test_a_torn_last_line_is_set_aside_and_said(ledger):
    with ledger.path.open("ab") as file:
        file.write(b'{"number": 3, "kind": "ga')
    assert check(ledger).whole, "an unfinished line is not an entry"
    ledger.append("gate", {"gate": "speed", "result": "PASS"})
    kinds = [entry.kind for entry in ledger.entries()]
    assert kinds == ["gate", "waiver", "gate", "recovery", "gate"]
    assert check(ledger).whole
    (aside,) = ledger.folder.glob("torn-*.bin")
    assert aside.read_bytes() == b'{"number": 3, "kind": "ga'


def test_an_entry_longer_than_one_read_block_is_followed(ledger):
    ledger.append("note", {"text": "x" * 300_000})
    ledger.append("note", {"text": "after"})
    assert check(ledger).whole


def test_merging_takes_each_entry_once_and_keeps_its_origin(ledger, tmp_path):
    other = Ledger(tmp_path / "other")
    other.append("gate", {"gate": "theirs", "result": "ERROR"}, [tmp_path / "report.json"])
    assert len(merge(ledger, other)) == 1
    assert merge(ledger, other) == []
    last = list(ledger.entries())[-1]
    assert last.merged.hash == next(other.entries()).hash
    assert check(ledger).whole


def test_a_broken_ledger_is_not_merged(ledger, tmp_path):
    rewrite(ledger, lambda x: x[1:])
    with pytest.raises(CorruptDumpError, match="not whole"):
        merge(Ledger(tmp_path / "into"), ledger)


def test_no_ledger_is_said_so(tmp_path):
    with pytest.raises(DumpError, match="there is no ledger"):
        check(Ledger(tmp_path / "nothing"))


def append_many(folder, count):
    for number in range(count):
        Ledger(folder).append("note", {"process": os.getpid(), "number": number})


@pytest.mark.slow
def test_concurrent_writers_lose_nothing(tmp_path):
    # 8 x 1000 entries is the full size: benchmarks/ledger_concurrency.py.
    writers = [
        multiprocessing.get_context("spawn").Process(target=append_many, args=(tmp_path, 40))
        for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = check(Ledger(tmp_path))
    assert (found.entries, found.problems) == (160, [])


@pytest.mark.slow
def test_a_killed_writer_leaves_a_ledger_that_goes_on(tmp_path):
    code = (
        "import sys, pathlib; from verify.ledger.store import Ledger\n"
        "ledger = Ledger(pathlib.Path(sys.argv[1]))\n"
        "while True: ledger.append('note', {'text': 'x' * 2000})"
    )
    ledger = Ledger(tmp_path)
    for pause in (0.05, 0.13):
        writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
        while not ledger.path.exists() or ledger.path.stat().st_size < 2000:
            time.sleep(0.01)
        time.sleep(pause)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert check(ledger).whole
        ledger.append("note", {"text": "after the kill"})
        assert check(ledger).whole
