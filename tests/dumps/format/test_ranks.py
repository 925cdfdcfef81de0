"""Several ranks write beside each other; rank 0 completes the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dumps.format.small_dumps import make_manifest, make_record, make_rows, random_words
from verify.dumps.format import DumpWriter, open_dump
from verify.errors import ArgumentError, CorruptDumpError, DumpError, DumpExistsError


def open_writer(path: Path, rank: int, run_id: str = "run-1") -> DumpWriter:
    return DumpWriter(path, make_manifest(run_id, ranks=2), rank=rank)


def add(writer: DumpWriter, seq: int, **fields: object) -> None:
    words = random_words(2, 4, seed=seq + 100 * writer.rank)
    writer.add(make_record(seq, words, **fields), make_rows(words, "float32"), words)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_either_rank_may_begin(tmp_path: Path, order: tuple[int, int]) -> None:
    writers = {rank: open_writer(tmp_path / "run", rank) for rank in order}
    for rank, writer in writers.items():
        add(writer, 0, epoch=0)
        add(writer, 1, epoch=rank, tap=f"only.{rank}")
    writers[1].close()
    writers[0].close()
    dump = open_dump(tmp_path / "run")
    assert dump.complete and dump.ranks == [0, 1]
    assert [(r.epoch, r.seq, r.rank) for r in dump.records()] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (1, 1, 1),
    ]
    assert [r.rank for r in dump.records(rank=1)] == [1, 1]
    assert set(dump.manifest.taps) == {"layer.0.out", "only.0", "only.1"}
    for record in dump.records():
        assert (
            dump.read_words(record) == random_words(2, 4, seed=record.seq + 100 * record.rank)
        ).all()


def test_rank_0_waits_for_the_others(tmp_path: Path) -> None:
    zero, one = (open_writer(tmp_path / "run", rank) for rank in (0, 1))
    add(zero, 0)
    add(one, 0)
    with pytest.raises(DumpError, match=r"another rank of the run has not been closed"):
        zero.close()
    dump = open_dump(tmp_path / "run")
    assert not dump.complete
    assert dump.problems == [
        "the run did not come to its end; committed parts: rank 0: 1, rank 1: 0"
    ]
    one.close()
    zero.close()
    assert open_dump(tmp_path / "run").complete


def test_a_rank_of_another_run_is_foreign(tmp_path: Path) -> None:
    for name in ("run", "other"):
        writers = [open_writer(tmp_path / name, rank, run_id=name) for rank in (1, 0)]
        for writer in writers:
            add(writer, 0)
            writer.close()
    (tmp_path / "run" / "rank-1").rename(tmp_path / "own")
    (tmp_path / "other" / "rank-1").rename(tmp_path / "run" / "rank-1")
    with pytest.raises(CorruptDumpError, match="the part belongs to another run"):
        open_dump(tmp_path / "run")


def test_a_rank_beyond_the_manifest_is_foreign(dump_path: Path) -> None:
    (dump_path / "rank-1").mkdir()
    with pytest.raises(CorruptDumpError, match="a rank that the manifest does not know"):
        open_dump(dump_path)


def test_a_rank_is_written_once(tmp_path: Path) -> None:
    open_writer(tmp_path / "run", 1)
    with pytest.raises(DumpExistsError):
        open_writer(tmp_path / "run", 1)
    open_writer(tmp_path / "run", 0)
    with pytest.raises(DumpExistsError):
        open_writer(tmp_path / "run", 0)


def test_a_rank_outside_the_run(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"rank outside the run[\s\S]*0\.\.1"):
        open_writer(tmp_path / "run", 2)
    assert not (tmp_path / "run").exists()
