"""Dumps behind a URL: the same rows and words as on a disk, and an outage is no corruption."""

from pathlib import Path

import numpy as np
import pytest

from verify.cli import main
from verify.dumps.format import open_dump
from verify.dumps.format.remote import RemotePath
from verify.errors import ArgumentError, CorruptDumpError, DumpError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def url(dump_path: Path) -> str:
    """The dump of conftest, in the memory of this process."""
    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True) if memory.ls("/") else None
    memory.put(str(dump_path), "/bucket/run", recursive=True)
    return "memory://bucket/run"


def test_a_dump_behind_a_url_reads_as_on_a_disk(dump_path: Path, url: str) -> None:
    here, there = open_dump(dump_path), open_dump(url)
    assert there.complete and there.total_bytes == here.total_bytes
    assert there.records() == here.records()
    for record in here.records():
        x, y = here.rows(record), there.rows(record)
        assert np.array_equal(x.digest, y.digest)
        assert x.sequence.tolist() == y.sequence.tolist()
        if here.holder(record).kept == "full":
            assert np.array_equal(here.read_words(record), there.read_words(record))
    assert here.tokens() == there.tokens()


def test_large_tensors_are_read_by_ranges(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify.dumps.format.reader.SMALL_FILE", 0)
    asked: list[int] = []
    whole = RemotePath.read_range

    def read_range(self: RemotePath, start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return whole(self, start, stop)

    monkeypatch.setattr(RemotePath, "read_range", read_range)
    dump = open_dump(url)
    record = next(r for r in dump.records() if r.kept == "full" and r.n_rows > 1)
    asked.clear()
    words = dump.read_words(record, 1, 2)
    row = words.nbytes
    assert asked == [row * record.n_rows, row]  # verified once, then the row alone


def test_a_changed_remote_file_is_corruption(url: str) -> None:
    memory = fsspec.filesystem("memory")
    name = "/bucket/run/rank-0/part-00000/rows.parquet"
    data = bytearray(memory.cat_file(name))
    data[len(data) // 2] ^= 1
    memory.pipe_file(name, bytes(data))
    with pytest.raises(CorruptDumpError, match="other bytes"):
        open_dump(url)


def test_a_missing_remote_part_is_corruption(url: str) -> None:
    fsspec.filesystem("memory").rm("/bucket/run/rank-0/part-00001", recursive=True)
    with pytest.raises(CorruptDumpError, match="a part is missing"):
        open_dump(url)


def test_nothing_there_is_no_dump() -> None:
    with pytest.raises(DumpError, match="there is no dump"):
        open_dump("memory://bucket/nothing")


def test_an_outage_is_no_corruption(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> bytes:
        raise RuntimeError("connection reset")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", fails)
    with pytest.raises(DumpError, match="cannot be read") as caught:
        open_dump(url)
    assert not isinstance(caught.value, CorruptDumpError)
    assert "connection reset" in str(caught.value)


def test_an_unknown_protocol_says_what_to_install() -> None:
    with pytest.raises(ArgumentError, match=r"firstdiff\[remote\]"):
        open_dump("nosuchprotocol://bucket/run")


@pytest.mark.parametrize(
    "command", [["inspect"], ["compare"], ["bisect"]], ids=lambda command: command[0]
)
def test_commands_take_urls(
    command: list[str], dump_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [url] if command == ["inspect"] else [str(dump_path), url]
    monkeypatch.setattr("sys.argv", ["verify", *command, *runs, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
