"""tensors.safetensors: raw words as row matrices, written by the library, read at positions.

The header is parsed here instead of by the library because a dump is read with ``pread`` in
blocks (mapped pages would count against the memory of a comparison), and because every way in
which a file can be wrong has to be told apart from a difference between two runs.
Layout: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from verify.dumps.format.faults import corrupt
from verify.dumps.format.files import Place, read_into, read_range
from verify.dumps.format.layout import MAX_SIZE, word_bytes

WORD_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "U8": np.dtype("uint8"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
}
_FIRST_READ: Final = 1 << 16  # holds most headers: one request instead of two
_MAX_HEADER: Final = 100_000_000  # the library's own limit (safetensors/src/tensor.rs)


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a row matrix lies in its file: byte offset, rows, words in a row, word type."""

    offset: int
    rows: int
    row_length: int
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        return self.row_length * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


def write_tensors(path: Path, words: Mapping[str, np.ndarray]) -> None:
    """Write row matrices [rows, row_length] of unsigned words under the decimal ``seq``."""
    from safetensors.numpy import save_file

    save_file(dict(words), path)


def read_header(path: Place, size: int) -> dict[str, TensorPlace]:
    """Parse and check the header of a file of ``size`` bytes: no overlap, no hole, no overhang.

    Raises:
        CorruptDumpError: the header does not describe the file.
    """
    begin = read_range(path, 0, min(size, _FIRST_READ))
    length = int.from_bytes(begin[:8], "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        raise corrupt("the header is longer than the file", path, f"{length} bytes of {size}")
    text = begin[8 : 8 + length]
    if len(text) < length:
        text += read_range(path, len(begin), 8 + length)
    try:
        header = msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise corrupt("the header is not a table of tensors", path, error) from None
    header.pop("__metadata__", None)
    start = 8 + length
    places = {name: _place(path, name, entry, start) for name, entry in header.items()}
    _check_cover(path, places, start, size)
    return places


def _place(path: Place, name: str, entry: dict[str, Any], start: int) -> TensorPlace:
    try:
        dtype = WORD_TYPES[entry["dtype"]]
        rows, row_length = (_size(value) for value in entry["shape"])
        begin, end = (_size(value) for value in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt(
            f"the header entry of tensor {name!r} is not that of a row matrix", path, repr(error)
        ) from None
    place = TensorPlace(start + begin, rows, row_length, dtype)
    if end - begin != place.nbytes:
        raise corrupt(
            f"tensor {name!r} has another size than its shape says",
            path,
            f"{end - begin} bytes",
            f"{place.nbytes} bytes",
        )
    return place


def _size(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise ValueError(f"{value!r} is not a size")
    return value


def _check_cover(path: Place, places: dict[str, TensorPlace], start: int, size: int) -> None:
    """Tensors must lie one behind the other, up to the end of the file."""
    expected = start
    for name, place in sorted(places.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if place.offset != expected:
            what = "overlaps the one before" if place.offset < expected else "leaves a hole before"
            raise corrupt(f"tensor {name!r} {what}", path, f"byte {place.offset}", expected)
        expected += place.nbytes
    if expected != size:
        raise corrupt("the tensors do not fill the file", path, f"{size} bytes", expected)


def cut_rows(data: bytes, path: Place, place: TensorPlace, start: int, stop: int) -> np.ndarray:
    """As :func:`read_rows`, out of the bytes of the whole file."""
    offset = place.offset + start * place.row_bytes
    end = place.offset + stop * place.row_bytes
    if end > len(data):
        raise corrupt("the file ends inside a tensor", path, f"byte {len(data)}")
    words = np.frombuffer(bytearray(data[offset:end]), place.dtype)
    return words.reshape(stop - start, place.row_length)


def read_rows(path: Place, place: TensorPlace, start: int, stop: int) -> np.ndarray:
    """Words of rows ``start:stop`` as a new array [rows, row_length], by positioned reads."""
    words = np.empty((stop - start, place.row_length), place.dtype)
    view = word_bytes(words)
    offset = place.offset + start * place.row_bytes
    count = read_into(path, view, offset)
    if count < len(view):
        raise corrupt("the file ends inside a tensor", path, f"byte {offset + count}")
    return words
