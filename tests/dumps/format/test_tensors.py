"""Hostile headers of tensors.safetensors: one row for each way in which one can lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from verify.dumps.format.tensors import TensorPlace, read_header, read_rows
from verify.errors import CorruptDumpError


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {"0": entry("U8", [2, 3], 0, 6), "1": entry("U16", [1, 1], 6, 8)}


def write(path: Path, header: object, data: bytes = bytes(8), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def read(path: Path) -> dict[str, TensorPlace]:
    return read_header(path, path.stat().st_size)


def test_the_good_header(tmp_path: Path) -> None:
    path = write(tmp_path / "t", GOOD)
    places = read(path)
    assert places["0"].nbytes == 6 and places["1"].dtype == np.uint16
    assert read_rows(path, places["0"], 1, 2).shape == (1, 3)


HOSTILE: list[tuple[str, object]] = [
    ("not a table of tensors", b"{"),
    ("not a table of tensors", b"[]"),
    ("not a table of tensors", b"\xff\xfe"),
    ("not a table of tensors", b'{"0":' * 5000),
    ("not a table of tensors", {"0": 3}),
    ("not that of a row matrix", {"0": {}}),
    ("not that of a row matrix", {"0": entry("F32", [1, 2], 0, 8)}),
    ("not that of a row matrix", {"0": entry("U8", [8], 0, 8)}),
    ("not that of a row matrix", {"0": entry("U8", [2, 2, 2], 0, 8)}),
    ("not that of a row matrix", {"0": entry("U8", [-1, -8], 0, 8)}),
    ("not that of a row matrix", {"0": entry("U8", [1, 8.0], 0, 8)}),
    ("not that of a row matrix", {"0": entry("U8", [1, True], 0, 1)}),
    ("not that of a row matrix", {"0": entry("U8", [0, 1 << 60], 0, 0)}),
    ("not that of a row matrix", {"0": entry("U8", "18", 0, 8)}),  # type: ignore[arg-type]
    ("another size than its shape", {"0": entry("U8", [1, 7], 0, 8)}),
    ("another size than its shape", {"0": entry("U64", [1 << 40, 1 << 40], 0, 8)}),
    ("another size than its shape", {"0": entry("U8", [1, 8], 8, 0)}),
    ("overlaps the one before", {**GOOD, "1": entry("U16", [1, 2], 4, 8)}),
    ("overlaps the one before", {**GOOD, "2": entry("U8", [1, 2], 6, 8)}),
    ("leaves a hole before", {"0": entry("U8", [1, 4], 4, 8)}),
    ("leaves a hole before", {"0": entry("U8", [1, 4], 0, 4), "1": entry("U8", [1, 2], 6, 8)}),
    ("do not fill the file", {"0": entry("U8", [1, 6], 0, 6)}),
    ("do not fill the file", {"0": entry("U8", [1, 9], 0, 9)}),
    ("do not fill the file", {}),
]


@pytest.mark.parametrize(("message", "header"), HOSTILE)
def test_a_header_that_lies(tmp_path: Path, message: str, header: object) -> None:
    path = write(tmp_path / "t", header)
    with pytest.raises(CorruptDumpError, match=message):
        read(path)


@pytest.mark.parametrize("length", [0xFFFFFFFFFFFFFFFF, 1 << 40, 300])
def test_a_header_longer_than_the_file(tmp_path: Path, length: int) -> None:
    with pytest.raises(CorruptDumpError, match="the header is longer than the file"):
        read(write(tmp_path / "t", GOOD, length=length))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_too_short_for_a_length(tmp_path: Path, size: int) -> None:
    (tmp_path / "t").write_bytes(bytes(size))
    with pytest.raises(CorruptDumpError, match="the header is longer than the file"):
        read(tmp_path / "t")


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t", GOOD)
    places = read(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptDumpError, match="the file ends inside a tensor"):
        read_rows(path, places["1"], 0, 1)


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may give less than was asked for; it does so beyond 2 GiB."""
    path = write(tmp_path / "t", GOOD, data=bytes(range(8)))
    whole = os.preadv

    def stingy(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return whole(descriptor, [buffers[0][:2]], offset)

    monkeypatch.setattr(os, "preadv", stingy)
    assert read_rows(path, read(path)["0"], 0, 2).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_files_of_the_library_read_the_same(tmp_path: Path) -> None:
    """The header parser against the library, on zero sizes and every word type."""
    rng = np.random.default_rng(0)
    arrays = {
        str(seq): rng.integers(0, 255, shape).astype(dtype)
        for seq, (shape, dtype) in enumerate(
            [((2, 3), "u1"), ((0, 5), "u8"), ((5, 0), "u2"), ((7, 1), "u4"), ((3, 3), "u8")]
        )
    }
    save_file(arrays, tmp_path / "t", metadata={"note": "ignored"})
    places = read(tmp_path / "t")
    for name, expected in load_file(tmp_path / "t").items():
        found = read_rows(tmp_path / "t", places[name], 0, places[name].rows)
        assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
        assert found.shape == expected.shape
