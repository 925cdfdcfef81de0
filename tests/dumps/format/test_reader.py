"""What a reader says of things that are not whole dumps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.dumps.format.small_dumps import make_record, make_rows, random_words, write_dump
from verify.dumps.format import DumpWriter, layout, open_dump, reader
from verify.errors import ArgumentError, CorruptDumpError, DumpError


def reseal(path: Path, **changes: object) -> None:
    """Change fields of a JSON file and give it a right checksum again."""
    fields = json.loads(path.read_text()) | changes | {"checksum": layout.NO_CHECKSUM}
    path.write_bytes(layout.seal(json.dumps(fields, separators=(",", ":")).encode()))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"there is no dump[\s\S]*where: .*absent"):
        open_dump(tmp_path / "absent")


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"this is not a dump[\s\S]*an empty folder"):
        open_dump(tmp_path)


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    with pytest.raises(DumpError, match="a dump is a folder"):
        open_dump(tmp_path / "x")


def test_another_folder(dump_path: Path) -> None:
    with pytest.raises(DumpError, match=r"this is not a dump[\s\S]*without manifest\.json"):
        open_dump(dump_path / "rank-0")


def test_another_json(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "other", "version": 1}')
    with pytest.raises(DumpError, match=r"this is not a dump[\s\S]*other"):
        open_dump(tmp_path)


def test_a_newer_version(dump_path: Path) -> None:
    reseal(dump_path / "manifest.json", version=2, unheard_of={"a": 1})
    with pytest.raises(
        DumpError, match=r"another format version[\s\S]*found: +2[\s\S]*allowed: +1"
    ):
        open_dump(dump_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff", '{"format":3}', "[" * 100_000])
def test_a_manifest_that_does_not_parse(dump_path: Path, text: str) -> None:
    (dump_path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptDumpError, match="the manifest does not parse"):
        open_dump(dump_path)


def test_an_edited_manifest(dump_path: Path) -> None:
    path = dump_path / "manifest.json"
    path.write_text(path.read_text().replace("[5,3,9]", "[5,3,8]"))
    with pytest.raises(CorruptDumpError, match=r"the manifest was changed after it was written"):
        open_dump(dump_path)


def test_an_edited_part(dump_path: Path) -> None:
    path = dump_path / "rank-0" / "part-00001" / "part.json"
    path.write_text(path.read_text().replace('"first_step":1', '"first_step":0'))
    with pytest.raises(CorruptDumpError, match=r"part\.json was changed after it was written"):
        open_dump(dump_path)


def test_impossible_ends_and_ranks(dump_path: Path) -> None:
    path = dump_path / "manifest.json"
    for changes in ({"status": "open"}, {"ranks": 2}, {"ranks": 0}, {"ends": {}}):
        before = path.read_bytes()
        reseal(path, **changes)
        with pytest.raises(CorruptDumpError, match=r"ends of the ranks|number of ranks"):
            open_dump(dump_path)
        path.write_bytes(before)
    open_dump(dump_path)


def part(path: Path, index: int) -> Path:
    return path / "rank-0" / f"part-{index:05d}"


def test_a_missing_part(dump_path: Path) -> None:
    shutil.rmtree(part(dump_path, 1))
    with pytest.raises(CorruptDumpError, match=r"a part is missing before others[\s\S]*part-00001"):
        open_dump(dump_path)


def test_a_missing_last_part(dump_path: Path) -> None:
    shutil.rmtree(part(dump_path, 2))
    with pytest.raises(CorruptDumpError, match=r"parts are missing or foreign[\s\S]*3 parts"):
        open_dump(dump_path)


def test_a_foreign_part(dump_path: Path, tmp_path: Path) -> None:
    other = write_dump(tmp_path / "other", run_id="run-2")
    for index in range(3):
        shutil.rmtree(part(dump_path, index))
        shutil.copytree(part(other, index), part(dump_path, index))
        with pytest.raises(CorruptDumpError, match="the part belongs to another run"):
            open_dump(dump_path)


def test_swapped_parts(dump_path: Path, tmp_path: Path) -> None:
    part(dump_path, 0).rename(tmp_path / "aside")
    part(dump_path, 1).rename(part(dump_path, 0))
    (tmp_path / "aside").rename(part(dump_path, 1))
    with pytest.raises(CorruptDumpError, match="a part stands in another's place"):
        open_dump(dump_path)


@pytest.mark.parametrize("name", layout.CHECKED_FILES)
def test_a_missing_truncated_or_changed_file(dump_path: Path, name: str) -> None:
    path = part(dump_path, 1) / name
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(CorruptDumpError, match=rf"file of the dump is missing[\s\S]*{name}"):
        open_dump(dump_path)
    path.write_bytes(whole[:-1])
    with pytest.raises(CorruptDumpError, match=r"another size than when it was written"):
        open_dump(dump_path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptDumpError, match=r"other (bytes|words) than when it was written"):
        dump = open_dump(dump_path)
        for record in dump.records():
            dump.verify_tensor(record)


def test_a_flipped_bit_in_a_tensor_is_corruption_for_every_reader(dump_path: Path) -> None:
    path = part(dump_path, 0) / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x10
    path.write_bytes(bytes(data))
    dump = open_dump(dump_path)
    hit = max(
        (r for r in dump.records() if r.step == 0 and r.kept == "full"),
        key=lambda r: dump._holder(r)[1].place(r).offset,
    )
    message = rf"other words than when it was written: record {hit.seq}"
    with pytest.raises(CorruptDumpError, match=message):
        dump.read_words(hit, 0, 1)  # rows that are not hit themselves
    with pytest.raises(CorruptDumpError, match=message):
        list(dump.read_blocks(hit, 8))
    with pytest.raises(CorruptDumpError, match=message):
        dump.verify_tensor(hit)


def test_a_tensor_is_verified_once(dump_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = open_dump(dump_path)
    record = dump.records()[1]
    dump.read_words(record)
    calls: list[int] = []
    monkeypatch.setattr(
        reader.Dump, "_read", lambda *a: calls.append(1) or np.zeros((1, 8), np.uint32)
    )
    dump.verify_tensor(record)
    assert calls == []
    dump.read_words(record, 0, 1)
    assert calls == [1]


def test_an_open_dump_is_partial(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "run", close=False)
    left = path / "rank-0" / "part-00003.tmp"
    left.mkdir()
    (left / "records.parquet").write_bytes(b"half")
    dump = open_dump(path)
    assert not dump.complete
    assert {r.step for r in dump.records()} == {0, 1, 2}
    assert dump.problems == [
        "the run did not come to its end; committed parts: rank 0: 3",
        "left over from an unfinished part, not read: rank-0/part-00003.tmp",
    ]


def test_an_open_dump_without_a_part(writer_at: Callable[..., DumpWriter]) -> None:
    dump = open_dump(writer_at().path)
    assert dump.records() == [] and not dump.complete and dump.tokens()["sky#0"].generated == []


def test_words_that_were_not_kept(writer_at: Callable[..., DumpWriter]) -> None:
    words = random_words(2, 4)
    with writer_at() as writer:
        record = make_record(0, words, kept="digest")
        writer.add(record, make_rows(words, "float32"), None)
    dump = open_dump(writer.path)
    with pytest.raises(ArgumentError, match=r"words of this record were not kept[\s\S]*in full"):
        dump.read_words(dump.records()[0])


def test_rows_that_do_not_exist(dump_path: Path) -> None:
    dump = open_dump(dump_path)
    with pytest.raises(ArgumentError, match=r"no such rows[\s\S]*1:9[\s\S]*0\.\.3"):
        dump.read_words(dump.records()[1], 1, 9)
    with pytest.raises(ArgumentError, match="no such record"):
        dump.record(99)


def test_rows_of_many_parts_do_not_pile_up(
    dump_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CACHED_ROW_BYTES", 1)
    dump = open_dump(dump_path)
    for record in [*dump.records(), *dump.records()]:
        assert len(dump.rows(record)) == record.n_rows
    assert len(dump._tables) == 1


def test_opening_parses_no_table(dump_path: Path) -> None:
    dump = open_dump(dump_path)
    assert "_index" not in vars(dump) and not dump._tables


def test_tokens_of_taps_and_of_the_manifest(writer_at: Callable[..., DumpWriter]) -> None:
    prompt = np.array([[5], [3], [9]], np.uint64)
    with writer_at() as writer:
        add_tokens(writer, 0, "tokens.in", prompt, first=0)
        add_tokens(writer, 1, "tokens.out", np.array([[40]], np.uint64), first=2)
        add_tokens(writer, 2, "tokens.in", np.array([[40]], np.uint64), first=3)
        add_tokens(writer, 3, "tokens.out", np.array([[41]], np.uint64), first=3)
        writer.flush()
        track = open_dump(writer.path).tokens()["sky#0"]
        assert (track.prompt, track.generated, track.first_choice) == ([5, 3, 9], [40, 41], 2)
        assert track.entered == {0: 5, 1: 3, 2: 9, 3: 40} and track.chosen == {2: 40, 3: 41}


def add_tokens(writer: DumpWriter, seq: int, tap: str, words: np.ndarray, first: int) -> None:
    record = make_record(seq, words, "int64", tap=tap)
    writer.add(record, make_rows(words, "int64", first), words)


def test_tokens_without_taps_are_those_of_the_manifest(
    writer_at: Callable[..., DumpWriter],
) -> None:
    writer = writer_at()
    writer.manifest.workload.sequences[0].generated = [7, 8]
    writer.close()
    assert open_dump(writer.path).tokens()["sky#0"].generated == [7, 8]


def test_neither_torch_nor_matplotlib_is_loaded(dump_path: Path) -> None:
    program = (
        "import sys, verify.compare\n"
        "from verify.dumps.format import open_dump, DumpWriter\n"
        "dump = open_dump(sys.argv[1]); [dump.rows(r) for r in dump.records()]\n"
        "sys.exit(bool({'torch', 'matplotlib', 'transformers'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program, str(dump_path)], check=True, timeout=60)


def test_there_is_no_pickle_in_the_package() -> None:
    import verify.dumps.format

    folder = Path(verify.dumps.format.__file__).parent
    texts = [path.read_text() for path in folder.glob("*.py")]
    assert len(texts) > 5 and not any("pickle" in text or "torch" in text for text in texts)
