"""Records as columns: the same records as objects, looked up and asked by kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dumps.format.small_dumps import make_manifest, make_record, make_rows, random_words
from verify.dumps.format import DumpWriter, open_dump, record_columns
from verify.dumps.format.input_lists import NOBODY
from verify.dumps.format.invariants import RecordChain, first_fault
from verify.dumps.format.record_columns import decode_records
from verify.dumps.format.record_table import encode_records
from verify.dumps.format.records import Records, joined
from verify.dumps.format.schema import Input, Record

WORDS = random_words(3, 8)


def varied(count: int = 40, rank: int = 0) -> list[Record]:
    """Records that share some fields and not others."""
    found: list[Record] = []
    for seq in range(3, 3 * count, 3):
        same = 3 if seq % 5 == 0 else None
        found.append(
            make_record(
                seq,
                WORDS,
                step=seq // 10,
                tap=f"layers.{seq % 4}.out",
                occurrence=seq % 2,
                epoch=seq // 20,
                kept="same" if same is not None else ("digest", "full")[seq % 2],
                same_as=same,
                storage_offset=seq % 3,
                strides=[8, 1] if seq % 4 else [16, 2],
                n_rows=3,
                ops=["mm", "add"][: seq % 3],
                attributes={"scale": 0.5, "at": seq} if seq % 7 == 0 else {},
                inputs=[
                    Input(kind="record", seq=3),
                    Input(kind="weight", name=f"w{seq % 2}"),
                    Input(kind="value", name="mask", digest="ab"),
                    Input(kind="unknown"),
                ][seq % 4 if seq > 3 else 1 :],
                rank=rank,
            )
        )
    return found


def stored(records: list[Record], rank: int = 0) -> Records:
    return decode_records(encode_records(records).to_pybytes(), rank)


def test_columns_give_back_the_records() -> None:
    records = varied()
    assert list(stored(records)) == records
    assert list(Records.of(records)) == records
    assert list(joined([stored(records[:7]), stored(records[7:])])) == records


def test_records_that_look_alike_share_a_kind() -> None:
    records = [make_record(seq, WORDS, step=seq, tap="x", n_rows=3) for seq in range(1000)]
    found = stored(records)
    assert len(found.kinds) == 1 and len(found.lists) == 1
    assert found.kind.nbytes + found.seq.nbytes + found.step.nbytes <= 12 * len(records)


def test_equal_hashes_of_different_lines_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    records = varied()
    monkeypatch.setattr(record_columns, "mixed", lambda values: np.zeros_like(values))
    assert list(stored(records)) == records


def test_lookups_and_questions_agree_with_the_objects() -> None:
    records = [*varied(rank=1), *varied(rank=0)]
    found = Records.of(records)
    places = {(r.rank, r.seq): number for number, r in enumerate(records)}
    for (rank, seq), number in places.items():
        assert found.number(rank, seq) == number
    assert [found.number(*lost) for lost in ((0, 4), (2, 3), (0, -3), (0, 1 << 60))] == [NOBODY] * 4
    asked = np.array([3, 4, 6])
    assert found.numbers(np.array([1, 1, 0]), asked).tolist() == [0, NOBODY, places[0, 6]]
    assert found.by_kind(lambda kind: kind.tap == "layers.1.out").tolist() == [
        r.tap == "layers.1.out" for r in records
    ]
    assert found.tap_names == list(dict.fromkeys(r.tap for r in records))
    for tap, numbers in found.by_tap().items():
        assert numbers.tolist() == [n for n, r in enumerate(records) if r.tap == tap]
    edges = [
        (number, places[r.rank, s.seq])
        for number, r in enumerate(records)
        for s in r.inputs
        if s.seq is not None
    ]
    assert list(zip(*(side.tolist() for side in found.edges()), strict=True)) == edges
    holders = [places[r.rank, r.seq if r.same_as is None else r.same_as] for r in records]
    assert found.holders().tolist() == holders
    for kind in ("record", "weight", "value", "unknown"):
        expected = [any(s.kind == kind for s in r.inputs) for r in records]
        assert found.reads(kind).tolist() == expected


FAULTS: dict[str, dict[str, Any]] = {
    "order": {"seq": 6},
    "twice": {"seq": 27},
    "step": {"step": 0},
    "input": {"inputs": [Input(kind="record", seq=4)]},
    "later input": {"inputs": [Input(kind="record", seq=33)]},
    "own input": {"inputs": [Input(kind="record", seq=30)]},
    "same of nothing": {"kept": "same", "same_as": 4},
    "same of same": {"kept": "same", "same_as": 15},
    "same of another size": {"kept": "same", "same_as": 3, "n_rows": 2},
    "same without holder": {"kept": "same", "same_as": None},
    "dtype": {"dtype": "float33"},
    "shape": {"shape": [3]},
    "rows": {"n_rows": 4, "kept": "full", "same_as": None},
    "negative": {"epoch": -1},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_as_record_by_record(name: str) -> None:
    records = varied()
    assert first_fault(Records.of(records)) is None
    place = next(number for number, record in enumerate(records) if record.seq == 30)
    for field, value in FAULTS[name].items():
        setattr(records[place], field, value)
    records[place + 4].dtype = "nothing"  # a later fault is not what is told
    chain = RecordChain()
    expected = next(
        (number, fault)
        for number, record in enumerate(records)
        if (fault := chain.append(record)) is not None
    )
    assert first_fault(Records.of(records)) == expected == (place, expected[1])


def test_a_whole_dump_in_execution_order(tmp_path: Path) -> None:
    for rank in (1, 0):
        with_rank = make_manifest()
        with_rank.ranks = 2
        with DumpWriter(tmp_path / "run", with_rank, rank=rank) as writer:
            for seq in range(6):
                record = make_record(seq, WORDS, step=seq // 2, epoch=seq // 3)
                writer.add(record, make_rows(WORDS, "float32", 3 * seq), WORDS)
                writer.flush()
    dump = open_dump(tmp_path / "run")
    order = [(r.step, r.epoch, r.seq, r.rank) for r in dump.table()]
    assert order == sorted(order) and len(order) == 12
    seen = []
    for places, table in dump.row_tables():
        records = [dump.table()[int(place)] for place in places]
        assert table.record.tolist() == [r.seq for r in records for _ in range(r.n_rows)]
        seen += places.tolist()
    assert sorted(seen) == list(range(12))
