"""Parts whose checksums are right and whose contents contradict each other: a faulty writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.dumps.format.small_dumps import (
    make_manifest,
    make_record,
    make_rows,
    random_words,
)
from verify.dumps.format import Dump, DumpWriter, commit, layout, open_dump
from verify.dumps.format.commit import Pending, commit_part
from verify.dumps.format.schema import Input
from verify.errors import CorruptDumpError

WORDS = random_words(3, 8)
OTHER = random_words(3, 4)


def honest() -> Pending:
    """Two records with words, the second also at another tap."""
    pending = Pending()
    for seq, words in ((0, WORDS), (1, OTHER)):
        record = make_record(seq, words, n_rows=3)
        pending.append(record, make_rows(words, "float32"), words)
    pending.append(make_record(2, OTHER, n_rows=3, kept="same", same_as=1), None, None)
    return pending


def committed(path: Path, pending: Pending) -> Dump:
    """An open dump with ``pending`` as its only part, with nothing checked."""
    writer = DumpWriter(path, make_manifest())
    start = layout.chain_start(writer.manifest.run_id, 0)
    commit_part(path / "rank-0", 0, 0, start, pending, "")
    return open_dump(path)


def read_all(dump: Dump) -> None:
    for record in dump.records():
        dump.rows(record)
        dump.read_words(record)


def test_the_honest_part_reads(tmp_path: Path) -> None:
    read_all(committed(tmp_path / "run", honest()))


def swap_seqs(p: Pending) -> None:
    p.records[0], p.records[1] = p.records[1], p.records[0]


def repeat_seq(p: Pending) -> None:
    p.records[1].seq = 0


def fall_back_a_step(p: Pending) -> None:
    p.records[0].step = 1


def more_rows_than_the_tensor(p: Pending) -> None:
    p.records[0].n_rows, p.records[0].shape = 4, [4, 8]


def longer_rows_than_the_tensor(p: Pending) -> None:
    p.records[0].row_length, p.records[0].shape = 9, [3, 9]


def another_word_type(p: Pending) -> None:
    p.records[0].dtype = "float16"


def more_elements_than_the_shape(p: Pending) -> None:
    p.records[0].shape = [2, 8]


def tensor_missing(p: Pending) -> None:
    del p.words["0"]


def tensor_without_record(p: Pending) -> None:
    p.words["9"] = WORDS


def rows_missing(p: Pending) -> None:
    del p.rows[1]


def rows_of_another_record(p: Pending) -> None:
    p.rows[1] = (7, p.rows[1][1])


def rows_in_another_order(p: Pending) -> None:
    p.rows.reverse()


def one_row_too_many(p: Pending) -> None:
    p.rows[1] = (1, make_rows(random_words(4, 4), "float32"))


def same_as_a_later_record(p: Pending) -> None:
    p.records[2].same_as = 5


def same_as_itself(p: Pending) -> None:
    p.records[2].same_as = 2


def same_of_another_size(p: Pending) -> None:
    p.records[2].same_as = 0


def same_of_another_dtype(p: Pending) -> None:
    p.records[2].dtype = "int32"


def input_that_is_not_there(p: Pending) -> None:
    p.records[1].inputs = [Input(kind="record", seq=44)]


def input_without_a_seq(p: Pending) -> None:
    p.records[1].inputs = [Input(kind="record")]


def unknown_kind_of_input(p: Pending) -> None:
    p.records[1].inputs = [Input(kind="guess")]  # type: ignore[arg-type]


def unknown_dtype(p: Pending) -> None:
    p.records[0].dtype = "float31"


def unknown_way_of_keeping(p: Pending) -> None:
    p.records[0].kept = "half"  # type: ignore[assignment]


def impossible_size(p: Pending) -> None:
    p.records[0].shape = [1 << 60, 8]


LIES: list[tuple[Callable[[Pending], None], str]] = [
    (swap_seqs, "out of execution order"),
    (repeat_seq, "its seq occurs twice"),
    (fall_back_a_step, "a step before that of its predecessor"),
    (more_rows_than_the_tensor, "a record points outside its tensor"),
    (longer_rows_than_the_tensor, "a record points outside its tensor"),
    (another_word_type, "a record points outside its tensor"),
    (more_elements_than_the_shape, "hold more elements than its shape"),
    (tensor_missing, "records and tensors of part.json differ"),
    (tensor_without_record, "records and tensors of part.json differ"),
    (rows_missing, "rows and records do not belong together"),
    (rows_of_another_record, "rows and records do not belong together"),
    (rows_in_another_order, "rows and records do not belong together"),
    (one_row_too_many, "rows and records do not belong together"),
    (same_as_a_later_record, "not an earlier record with rows"),
    (same_as_itself, "not an earlier record with rows"),
    (same_of_another_size, "repeats one of another dtype or size"),
    (same_of_another_dtype, "repeats one of another dtype or size"),
    (input_that_is_not_there, "names an input that no earlier record is"),
    (input_without_a_seq, "an input has kind 'record' and seq None"),
    (unknown_kind_of_input, "an input has kind 'guess'"),
    (unknown_dtype, "unknown dtype"),
    (unknown_way_of_keeping, "kept in an unknown way"),
    (impossible_size, "impossible size"),
]


@pytest.mark.parametrize(("lie", "message"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_contradiction_is_a_broken_dump(
    tmp_path: Path, lie: Callable[[Pending], None], message: str
) -> None:
    pending = honest()
    lie(pending)
    with pytest.raises(CorruptDumpError, match=message) as caught:
        read_all(committed(tmp_path / "run", pending))
    assert "part-00000" in str(caught.value.where)


def test_steps_of_part_json_are_those_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "Part", lambda **f: commit_part_type(**{**f, "last_step": 3}))
    with pytest.raises(CorruptDumpError, match=r"part\.json states other steps"):
        committed(tmp_path / "run", honest()).records()


commit_part_type = commit.Part


def broken_table(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[..., pa.Buffer]:
    """An encoder that spoils the table which the true one made."""
    encode = getattr(commit, name)

    def encoder(*args: object) -> pa.Buffer:
        table = change(pq.read_table(pa.BufferReader(encode(*args))))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return sink.getvalue()

    return encoder


def without(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([column])


def replaced(column: str, values: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return table.set_column(table.schema.get_field_index(column), column, array)

    return change


TABLES: list[tuple[str, Callable[[pa.Table], pa.Table], str]] = [
    ("encode_records", without("tap"), "'tap' is missing"),
    ("encode_records", replaced("seq", ["a", "b", "c"]), "'seq' has another type"),
    ("encode_records", replaced("seq", [0, None, 2]), "'seq' holds nulls"),
    ("encode_records", replaced("tap", ["a", None, "c"]), "'tap' holds nulls"),
    ("encode_records", replaced("shape", [[3, 8], [None, 1], [3, 8]]), "'shape' holds nulls"),
    ("encode_records", replaced("attributes", ["{}", "{", "{}"]), "attributes '{' do not parse"),
    ("encode_records", replaced("attributes", ["{}", "[]", "{}"]), r"attributes '\[\]' do not"),
    ("encode_records", lambda table: table.slice(0, 0), "part.json states other steps"),
    ("encode_rows", without("digest"), "'digest' is missing"),
    ("encode_rows", replaced("digest", [None] * 6), "'digest' holds nulls"),
    ("encode_rows", replaced("position", [0.5] * 6), "'position' has another type"),
    ("encode_rows", replaced("sketch", [[1.0] * 15] * 6), "does not hold 16 numbers"),
    ("encode_rows", lambda table: table.append_column("visit", table["visit"]), "occurs twice"),
]


@pytest.mark.parametrize(("encoder", "change", "message"), TABLES)
def test_a_table_with_other_columns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoder: str,
    change: Callable[[pa.Table], pa.Table],
    message: str,
) -> None:
    monkeypatch.setattr(commit, encoder, broken_table(encoder, change))
    with pytest.raises(CorruptDumpError, match=message):
        read_all(committed(tmp_path / "run", honest()))


def test_other_column_types_that_lose_nothing_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other Parquet writers choose narrower integers and large strings."""
    encode_records = broken_table(
        "encode_records", replaced("seq", pa.array([0, 1, 2], pa.int32()))
    )
    names = pa.array(["sky#0"] * 6, pa.large_string())
    encode_rows = broken_table("encode_rows", replaced("sequence", names))
    monkeypatch.setattr(commit, "encode_records", encode_records)
    monkeypatch.setattr(commit, "encode_rows", encode_rows)
    dump = committed(tmp_path / "run", honest())
    read_all(dump)
    assert dump.rows(dump.records()[0]).sequence.tolist() == ["sky#0"] * 3
    assert np.array_equal(dump.read_words(dump.records()[0]), WORDS)


def test_no_column_is_a_list_of_fixed_size() -> None:
    # pyarrow before 26, and other Parquet readers, refuse such a list where a line is null.
    from verify.dumps.format.record_table import RECORD_SCHEMA
    from verify.dumps.format.row_table import ROW_SCHEMA

    types = [field.type for schema in (ROW_SCHEMA, RECORD_SCHEMA) for field in schema]
    assert not any(pa.types.is_fixed_size_list(kind) for kind in types)
