"""The script of docs/dump-format.md, which uses nothing of this package, writes a valid dump."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from verify.dumps.digests import row_digests
from verify.dumps.format import open_dump
from verify.dumps.format.record_table import RECORD_SCHEMA
from verify.dumps.format.row_table import ROW_SCHEMA

DOC = (Path(__file__).parents[3] / "docs" / "dump-format.md").read_text()


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    (script,) = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    assert "verify." not in script and "import verify" not in script
    (tmp_path / "stranger.py").write_text(script)
    subprocess.run([sys.executable, "stranger.py"], cwd=tmp_path, check=True, timeout=60)
    return tmp_path / "stranger-run"


def test_the_documented_script_writes_a_dump(stranger: Path) -> None:
    dump = open_dump(stranger)
    assert dump.complete and dump.problems == []
    ids, hidden = dump.records()
    assert (ids.tap, hidden.tap, hidden.dtype) == ("tokens.in", "embed.out", "bfloat16")
    assert [(i.kind, i.seq, i.name) for i in hidden.inputs] == [
        ("record", 0, None),
        ("weight", None, "embed.weight"),
    ]
    assert dump.read_words(hidden).tolist() == [[0x3F80, 0xBF80, 0x7FC1], [0x8000, 0x7F80, 1]]
    for record in (ids, hidden):
        rows = dump.rows(record)
        expected = row_digests(dump.read_words(record), record.dtype)
        assert rows.digest.tolist() == expected.tolist()
        assert rows.position.tolist() == [0, 1] and rows.sketch is None
    assert dump.tokens()["hello#0"].entered == {0: 5, 1: 3}


def test_the_document_names_every_column(dump_path: Path) -> None:
    for schema in (RECORD_SCHEMA, ROW_SCHEMA):
        for name in schema.names:
            assert f"`{name}`" in DOC, name
    part = dump_path / "rank-0" / "part-00000"
    assert pq.read_schema(part / "records.parquet").names == RECORD_SCHEMA.names
    assert pq.read_schema(part / "rows.parquet").names == ROW_SCHEMA.names
