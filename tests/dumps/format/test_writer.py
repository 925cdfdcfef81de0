"""What a writer refuses, and what stays when it fails."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dumps.format.small_dumps import make_manifest, make_record, make_rows, random_words
from verify.dumps.format import DumpWriter, commit, layout, open_dump
from verify.dumps.format.schema import Input
from verify.errors import ArgumentError, DumpExistsError, StorageError, UsageError

WriterAt = Callable[..., DumpWriter]
WORDS = random_words(3, 8)


def add(writer: DumpWriter, seq: int, words: np.ndarray = WORDS, **fields: Any) -> None:
    writer.add(make_record(seq, words, **fields), make_rows(words, "float32"), words)


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_nothing_is_overwritten(dump_path: Path, tmp_path: Path) -> None:
    before = content(dump_path)
    for taken in (dump_path, dump_path / "rank-0", dump_path / "manifest.json"):
        with pytest.raises(DumpExistsError, match=r"never overwrites[\s\S]*next:"):
            DumpWriter(taken, make_manifest())
    assert content(dump_path) == before
    note = tmp_path / "notes"
    note.mkdir()
    (note / "thesis.txt").write_text("mine")
    with pytest.raises(DumpExistsError, match=r"thesis\.txt"):
        DumpWriter(note, make_manifest())


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    DumpWriter(tmp_path, make_manifest()).close()
    dump = open_dump(tmp_path)
    assert dump.complete and dump.records() == []


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("out of execution order", {"seq": 0}),
    ("a step before that of its predecessor", {"step": 2}),
    ("impossible step", {"step": -1}),
    ("unknown dtype", {"dtype": "float31", "kept": "digest"}),
    ("names an input that no earlier record is", {"inputs": [Input(kind="record", seq=9)]}),
    ("an input that no earlier record is", {"inputs": [Input(kind="record", seq=1)]}),
    ("not an earlier record with rows", {"kept": "same", "same_as": 7}),
    ("same_as goes with a record kept as 'same'", {"kept": "same"}),
    ("same_as goes with a record kept as 'same'", {"same_as": 0}),
    ("axes, shape and strides", {"axes": "b t d"}),
    ("hold more elements than its shape", {"shape": [3, 7]}),
    ("cannot be written as JSON", {"attributes": {"module": object()}}),
]


@pytest.mark.parametrize(("message", "fields"), REFUSED)
def test_a_contradiction_is_refused(
    writer_at: WriterAt, message: str, fields: dict[str, Any]
) -> None:
    writer = writer_at()
    add(writer, 0, step=3)
    record = make_record(**{"seq": 1, "words": WORDS, "step": 3, **fields})
    words = WORDS if record.kept == "full" else None
    with pytest.raises(ArgumentError, match=message):
        writer.add(record, make_rows(WORDS, "float32"), words)
    add(writer, 2, step=3)  # the refused record has left no trace
    writer.close()
    assert [r.seq for r in open_dump(writer.path).records()] == [0, 2]


def test_rows_and_words_must_fit(writer_at: WriterAt) -> None:
    writer = writer_at()
    rows = make_rows(WORDS, "float32")
    record = make_record(0, WORDS)
    with pytest.raises(
        ArgumentError, match=r"not the row matrix[\s\S]*uint32 \[3, 7\][\s\S]*\[3, 8\]"
    ):
        writer.add(record, rows, WORDS[:, :7])
    with pytest.raises(ArgumentError, match="not the row matrix"):
        writer.add(record, rows, WORDS.view(np.float32))
    with pytest.raises(ArgumentError, match="not the row matrix"):
        writer.add(record, rows, None)
    with pytest.raises(ArgumentError, match="without rows"):
        writer.add(record, None, WORDS)
    with pytest.raises(ArgumentError, match="kept='full' only"):
        writer.add(make_record(0, WORDS, kept="digest"), rows, WORDS)
    rows.sketch = np.zeros((3, 15), np.float32)
    with pytest.raises(ArgumentError, match=r"column 'sketch'[\s\S]*\[3, 15\][\s\S]*\[3, 16\]"):
        writer.add(record, rows, WORDS)
    rows.sketch, rows.visit = None, np.zeros(2, np.int64)
    with pytest.raises(ArgumentError, match="column 'visit'"):
        writer.add(record, rows, WORDS)


def test_parts_are_cut_by_size(writer_at: WriterAt) -> None:
    writer = writer_at(flush_bytes=10_000)
    for seq in range(10):
        add(writer, seq)
    writer.close()
    assert writer.parts == open_dump(writer.path).part_count == 3
    assert writer.bytes_written + (writer.path / "manifest.json").stat().st_size == (
        open_dump(writer.path).total_bytes
    )


def test_after_closing_nothing_is_taken(writer_at: WriterAt) -> None:
    writer = writer_at()
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="the dump is closed"):
        add(writer, 0)


def test_an_exception_leaves_the_dump_open_with_all_that_was_recorded(writer_at: WriterAt) -> None:
    writer = writer_at()
    with pytest.raises(ZeroDivisionError), writer:
        add(writer, 0)
        raise ZeroDivisionError
    dump = open_dump(writer.path)
    assert not dump.complete and [r.seq for r in dump.records()] == [0]
    assert dump.problems == ["the run did not come to its end; committed parts: rank 0: 1"]


def assert_only_first_part(writer: DumpWriter) -> None:
    dump = open_dump(writer.path)
    assert not dump.complete
    assert [r.seq for r in dump.records()] == [0]
    assert (dump.read_words(dump.records()[0]) == WORDS).all()


def test_the_byte_budget(writer_at: WriterAt) -> None:
    writer = writer_at(byte_budget=20_000)
    add(writer, 0)
    writer.flush()
    add(writer, 1, random_words(100, 100))
    expected = r"byte budget[\s\S]*bytes left[\s\S]*kept and readable: part-00000\.\.part-00000"
    with pytest.raises(StorageError, match=expected):
        writer.flush()
    with pytest.raises(StorageError, match="byte budget"):  # it stays failed, and says so
        add(writer, 2)
    with pytest.raises(StorageError, match="byte budget"):
        writer.close()
    assert_only_first_part(writer)


def test_a_disk_that_is_nearly_full(writer_at: WriterAt, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_at()
    add(writer, 0)
    writer.flush()
    monkeypatch.setattr(commit, "RESERVE_BYTES", 1 << 62)
    add(writer, 1)
    with pytest.raises(StorageError, match=r"disk is nearly full[\s\S]*kept and readable"):
        writer.flush()
    assert_only_first_part(writer)


@pytest.mark.parametrize("call", ["write_synced", "write_tensors", "sync", "rename", "mkdir"])
def test_a_write_that_fails_in_the_middle(
    writer_at: WriterAt, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Wherever the disk fills up, the parts before stay and nothing half-written is left."""
    writer = writer_at()
    add(writer, 0)
    writer.flush()
    add(writer, 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner = {"write_tensors": commit, "rename": os, "mkdir": Path}.get(call, layout)
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, full)
        with pytest.raises(StorageError, match=r"No space left[\s\S]*kept and readable.*free some"):
            writer.flush()
    assert sorted(p.name for p in (writer.path / "rank-0").iterdir()) == ["part-00000"]
    assert_only_first_part(writer)


def test_a_full_disk_while_completing(writer_at: WriterAt, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_at()
    add(writer, 0)
    writer.flush()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(layout, "write_synced", full)
        with pytest.raises(StorageError, match="the dump could not be completed"):
            writer.close()
    assert_only_first_part(writer)


LIMITED = """
import resource, signal, sys
from tests.dumps.format.small_dumps import make_manifest, make_record, make_rows, random_words
from verify.dumps.format import DumpWriter
from verify.errors import StorageError
writer = DumpWriter(sys.argv[1], make_manifest())
for seq, rows in ((0, 3), (1, 3000)):
    words = random_words(rows, 8)
    writer.add(make_record(seq, words), make_rows(words, "float32"), words)
    if seq:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    try:
        writer.flush()
    except StorageError as error:
        print(error)
"""


def test_the_libraries_report_a_failed_write_too(tmp_path: Path) -> None:
    """A real limit, which pyarrow and safetensors meet inside their own code."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "a part could not be written" in done.stdout and "File too large" in done.stdout
    dump = open_dump(tmp_path / "run")
    assert [r.seq for r in dump.records()] == [0] and not dump.complete
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 40_000  # the limit was the child's


def test_a_folder_without_permission(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc/verify-dump")  # where even root may not create a folder
    else:
        tmp_path.chmod(0o500)
        target = tmp_path / "run"
    with pytest.raises(StorageError, match=r"could not be created[\s\S]*next:"):
        DumpWriter(target, make_manifest())
