"""records.parquet as :class:`Records`: lines that look alike are found by hash, then compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from verify.dumps.format.input_lists import INPUT_KINDS, NOBODY, InputLists
from verify.dumps.format.parquet import Columns
from verify.dumps.format.record_table import RECORD_SCHEMA
from verify.dumps.format.records import Records
from verify.dumps.format.schema import Record

Numbers = NDArray[np.int64]

_TEXTS: Final = ("tap", "axes", "dtype", "kept")
_PLAIN: Final = ("occurrence", "storage_offset", "row_length", "n_rows", "carried")
_LISTS: Final = ("shape", "strides", "ops")


def decode_records(data: bytes, rank: int) -> Records:
    """Records of a Parquet file, all of ``rank``.

    Raises:
        ValueError: not Parquet, a column missing or of another type, a null, an input that is none,
            or attributes that are not a JSON table.
    """
    table = Columns(data, RECORD_SCHEMA)
    columns = {name: _whole(table[name]) for name in RECORD_SCHEMA.names}
    same = np.asarray(columns["same_as"].is_valid().to_numpy(zero_copy_only=False))
    shared: list[Any] = [
        *(_Texts.of(columns[name]) for name in _TEXTS),
        *(_Plain(_numbers(columns[name])) for name in _PLAIN),
        *(_List.of(columns[name]) for name in _LISTS),
        attributes := _Texts.of(columns["attributes"]),
        _Plain(same.astype(np.int64)),
    ]
    first, kind = group(shared, len(table))
    lists, list_of = _inputs(columns["inputs"], _numbers(columns["seq"]))
    tables = [_attributes(text) for text in attributes.values(first)]
    values = zip(
        *(column.values(first) for column in shared[:-2]), tables, same[first], strict=True
    )
    names = (*_TEXTS, *_PLAIN, *_LISTS, "attributes")
    kinds = [
        Record(seq=0, step=0, same_as=0 if repeats else None, **dict(zip(names, each, strict=True)))
        for *each, repeats in values
    ]
    return Records(
        kinds,
        lists,
        kind=kind,
        rank=np.full(len(table), rank),
        seq=_numbers(columns["seq"]),
        step=_numbers(columns["step"]),
        epoch=_numbers(columns["epoch"]),
        same_as=_numbers(columns["same_as"].fill_null(NOBODY)),
        list_of=list_of,
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.unify_dictionaries().combine_chunks()


def _attributes(text: str) -> dict[str, Any]:
    if text == "{}":
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"the attributes {text[:60]!r} do not parse: {error}") from None


def _numbers(column: pa.Array) -> Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


class _Plain:
    """A column of integers, one a line."""

    def __init__(self, codes: NDArray[Any]) -> None:
        self.codes = codes

    def is_constant(self) -> bool:
        return bool((self.codes == self.codes[:1]).all())

    def hash(self) -> NDArray[np.uint64]:
        return mixed(self.codes.astype(np.int64).view(np.uint64))

    def same(self, lines: Numbers) -> bool:
        """Whether each line is as the line ``lines`` names for it."""
        return bool((self.codes == self.codes[lines]).all())

    def values(self, lines: Numbers) -> list[Any]:
        return list(self.codes[lines].tolist())


class _Texts(_Plain):
    def __init__(self, codes: NDArray[Any], texts: list[str | None]) -> None:
        super().__init__(codes)
        self.texts = texts

    @classmethod
    def of(cls, column: pa.Array) -> _Texts:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes = coded.indices.fill_null(NOBODY).to_numpy(zero_copy_only=False)
        return cls(np.asarray(codes, np.int32), coded.dictionary.to_pylist())

    def values(self, lines: Numbers) -> list[Any]:
        return [self.texts[code] for code in self.codes[lines]]


@dataclass(slots=True)
class _List:
    """A column of lists; texts and other values by their codes."""

    starts: Numbers
    columns: list[NDArray[Any]]
    """Codes of the elements: one column, or one a field of a struct."""
    texts: list[str | None] | None = None

    @classmethod
    def of(cls, column: pa.ListArray) -> _List:
        starts, values = _starts(column)
        if pa.types.is_string(values.type):
            coded = _Texts.of(values)
            return cls(starts, [coded.codes], coded.texts)
        return cls(starts, [_numbers(values)])

    def is_constant(self) -> bool:
        counts = np.diff(self.starts)
        if (counts != counts[:1]).any():
            return False
        lists = (column.reshape(len(counts), -1) for column in self.columns if len(column))
        return all(bool((each == each[:1]).all()) for each in lists)

    def hash(self) -> NDArray[np.uint64]:
        counts = np.diff(self.starts)
        place = np.arange(len(self.columns[0])) - np.repeat(self.starts[:-1], counts)
        weights = mixed(np.arange(int(counts.max(initial=0)), dtype=np.uint64))[place]
        total = np.zeros(len(self.columns[0]), np.uint64)
        for column in self.columns:
            total = mixed(total + mixed(column.astype(np.int64).view(np.uint64) ^ weights))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(total, dtype=np.uint64)])
        found = sums[self.starts[1:]] - sums[self.starts[:-1]]
        return mixed(found + counts.astype(np.uint64))

    def same(self, lines: Numbers) -> bool:
        counts = np.diff(self.starts)
        if (counts != counts[lines]).any():
            return False
        shift = np.repeat(self.starts[lines] - self.starts[:-1], counts)
        there = np.arange(len(shift)) + shift
        return all(bool((column == column[there]).all()) for column in self.columns)

    def values(self, lines: Numbers) -> list[Any]:
        spans = ((self.starts[line], self.starts[line + 1]) for line in lines)
        found = [self.columns[0][a:b].tolist() for a, b in spans]
        texts = self.texts
        return found if texts is None else [[texts[code] for code in codes] for codes in found]

    def take(self, lines: Numbers) -> tuple[Numbers, list[NDArray[Any]]]:
        """Starts and element columns of some of the lists, one behind the other."""
        counts = np.diff(self.starts)[lines]
        ends = np.cumsum(counts)
        starts = np.concatenate([[0], ends]).astype(np.int64)
        at = np.arange(int(starts[-1])) + np.repeat(self.starts[lines] - starts[:-1], counts)
        return starts, [column[at] for column in self.columns]


def _starts(column: pa.ListArray) -> tuple[Numbers, pa.Array]:
    """First element of each list, and the elements from the first list on."""
    starts = np.asarray(column.offsets.to_numpy(), np.int64)
    if not len(column):
        return np.zeros(1, np.int64), column.values[:0]
    return starts - starts[0], column.values[starts[0] : starts[-1]]


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the input."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def group(columns: list[Any], lines: int) -> tuple[Numbers, NDArray[np.int32]]:
    """Lines that agree in all columns: the first line of each group, and the group of each line.

    The hash only proposes; groups that hold different lines (by chance or by intent) are given up,
    and every line becomes a group of its own.
    """
    columns = [column for column in columns if not column.is_constant()]
    if not columns:
        return np.zeros(min(lines, 1), np.int64), np.zeros(lines, np.int32)
    total = np.zeros(lines, np.uint64)
    for column in columns:
        total = mixed(total + column.hash())
    _, first, found = np.unique(total, return_index=True, return_inverse=True)
    order = np.argsort(first)  # groups in the order of their first lines
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first, found = first[order], place[found.reshape(-1)]
    if all(column.same(first[found]) for column in columns):
        return first, found.astype(np.int32)
    return np.arange(lines), np.arange(lines, dtype=np.int32)


def _inputs(column: pa.ListArray, seq: Numbers) -> tuple[InputLists, NDArray[np.int32]]:
    """The distinct lists of inputs, and which of them each line has."""
    starts, values = _starts(column)
    kinds, names, digests = (_Texts.of(values.field(name)) for name in ("kind", "name", "digest"))
    table = np.array([_kind_code(text) for text in kinds.texts] + [NOBODY], np.int8)
    kind = table[kinds.codes]
    sources = values.field("seq")
    given = np.asarray(sources.is_valid().to_numpy(zero_copy_only=False))
    wrong = np.flatnonzero((kind == NOBODY) | ((kind == 0) != given))
    if wrong.size:
        at = int(wrong[0])
        what = {name: values.field(name)[at].as_py() for name in ("kind", "seq")}
        raise ValueError(f"an input has kind {what['kind']!r} and seq {what['seq']!r}")
    readers = np.repeat(seq, np.diff(starts))
    with np.errstate(over="ignore"):
        back = np.where(kind == 0, readers - _numbers(sources.fill_null(0)), 0)
    texts = [*names.texts, *digests.texts]
    digest = np.where(digests.codes == NOBODY, NOBODY, digests.codes + len(names.texts))
    lists = _List(starts, [kind, back, names.codes, digest])
    first, found = group([lists], len(seq))
    kept, columns = lists.take(first)
    return (
        InputLists(
            kept,
            columns[0].astype(np.int8),
            columns[1],
            columns[2].astype(np.int32),
            columns[3].astype(np.int32),
            [text or "" for text in texts],
        ),
        found,
    )


def _kind_code(text: str | None) -> int:
    return INPUT_KINDS.index(text) if text in INPUT_KINDS else NOBODY
