"""The records of a run as columns: a few bytes a record, and an object only for one that is asked for.

Records of decode steps repeat each other: what two have in common (tap, axes, dtype, shape, ...) is a
*kind* and is held once. A question about kinds is answered once a kind, whatever the number of
records.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from verify.dumps.format.input_lists import INPUT_KINDS, NOBODY, InputLists, joined_lists
from verify.dumps.format.schema import Record

Numbers = NDArray[np.int64]

_RANK_BIT: Final = 48  # of a key; a seq has fewer bits (layout.MAX_SIZE)


class Records(Sequence[Record]):
    """Records, in the order of its columns.

    Args:
        kinds: distinct records, apart from ``rank``, ``seq``, ``step``, ``epoch``, ``same_as`` (0 where
            there is one) and ``inputs`` (empty).
        kind: of each record, its place in ``kinds``.
        same_as: ``seq`` of the holder, :data:`NOBODY` where the record holds its rows.
        lists: of inputs.
        list_of: of each record, its place in ``lists``.
    """

    def __init__(
        self,
        kinds: list[Record],
        lists: InputLists,
        *,
        kind: NDArray[np.integer[Any]],
        rank: NDArray[np.integer[Any]],
        seq: NDArray[np.integer[Any]],
        step: NDArray[np.integer[Any]],
        epoch: NDArray[np.integer[Any]],
        same_as: NDArray[np.integer[Any]],
        list_of: NDArray[np.integer[Any]],
    ) -> None:
        self.kinds = kinds
        self.lists = lists
        self.kind = kind
        self.rank, self.seq, self.step, self.epoch = map(small, (rank, seq, step, epoch))
        self.same_as = small(same_as)
        self.list_of = list_of

    @classmethod
    def of(cls, records: Sequence[Record]) -> Records:
        """The columns of records that are objects."""
        if isinstance(records, Records):
            return records
        codes: dict[Any, int] = {}
        kinds: list[Record] = []
        kind = np.zeros(len(records), np.int32)
        for number, record in enumerate(records):
            key = kind_key(record)
            if key not in codes:
                codes[key] = len(kinds)
                kinds.append(as_kind(record))
            kind[number] = codes[key]
        lists = InputLists.of_records(records)
        return cls(
            kinds,
            lists,
            kind=kind,
            rank=np.array([record.rank for record in records], np.int64),
            seq=np.array([record.seq for record in records], np.int64),
            step=np.array([record.step for record in records], np.int64),
            epoch=np.array([record.epoch for record in records], np.int64),
            same_as=np.array(
                [NOBODY if r.same_as is None else r.same_as for r in records], np.int64
            ),
            list_of=np.arange(len(records), dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.kind)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        if isinstance(at, slice):
            return [self._record(number) for number in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return self._record(at % len(self))

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, range(len(self)))

    def _record(self, number: int) -> Record:
        record: Record = copy.copy(self.kinds[self.kind[number]])
        record.rank = int(self.rank[number])
        record.seq = seq = int(self.seq[number])
        record.step = int(self.step[number])
        record.epoch = int(self.epoch[number])
        if record.same_as is not None:
            record.same_as = int(self.same_as[number])
        record.inputs = self.lists.of(int(self.list_of[number]), seq)
        return record

    def take(self, at: NDArray[Any] | slice) -> Records:
        """The records ``at``, in that order."""
        return Records(
            self.kinds,
            self.lists,
            kind=self.kind[at],
            rank=self.rank[at],
            seq=self.seq[at],
            step=self.step[at],
            epoch=self.epoch[at],
            same_as=self.same_as[at],
            list_of=self.list_of[at],
        )

    def by_kind(self, ask: Callable[[Record], Any], dtype: DTypeLike = np.bool_) -> NDArray[Any]:
        """``ask`` of every record, [records], asked once a kind: of all but ``rank``, ``seq``,
        ``step``, ``epoch``, the number behind ``same_as``, and ``inputs``."""
        return np.asarray(np.array([ask(kind) for kind in self.kinds], dtype)[self.kind])

    def where(self, ask: Callable[[Record], bool]) -> Numbers:
        """Numbers of the records of which ``ask`` holds, as :meth:`by_kind` asks."""
        return np.flatnonzero(self.by_kind(ask)) if len(self) else np.zeros(0, np.int64)

    @property
    def tap_names(self) -> list[str]:
        """Taps in the order in which records show them first."""
        first = np.full(len(self.kinds), len(self), np.int64)
        np.minimum.at(first, self.kind, np.arange(len(self)))
        order = [int(k) for k in np.argsort(first, kind="stable") if first[k] < len(self)]
        return list(dict.fromkeys(self.kinds[k].tap for k in order))

    def by_tap(self) -> dict[str, Numbers]:
        """Tap -> its records, in their order; taps in the order of :attr:`tap_names`."""
        names = self.tap_names
        place = {tap: number for number, tap in enumerate(names)}
        least = np.min_scalar_type(len(names))
        codes = self.by_kind(lambda kind: place.get(kind.tap, len(names)), least)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        return dict(zip(names, np.split(order, ends), strict=False))

    def numbers(self, rank: NDArray[Any] | int, seq: NDArray[Any]) -> Numbers:
        """Which record has this ``seq`` on this rank; :data:`NOBODY` for none."""
        if not len(self):
            return np.full(np.shape(seq), NOBODY, np.int64)
        keys, order = self._lookup
        wanted = np.asarray(seq)
        if keys is not self.seq:
            wanted = (np.asarray(rank, np.int64) << _RANK_BIT) + wanted
        elif np.any(rank):  # there is rank 0 only
            wanted = np.where(np.asarray(rank) == 0, wanted, NOBODY)
        # In the type of the keys: anything else would copy all of them for one question.
        fits = np.iinfo(keys.dtype)
        needle = np.clip(wanted, fits.min, fits.max).astype(keys.dtype)
        at = np.minimum(np.searchsorted(keys, needle, sorter=order), len(self) - 1)
        found = at if order is None else order[at]
        return np.where(keys[found] == wanted, found, NOBODY)

    def number(self, rank: int, seq: int) -> int:
        """As :meth:`numbers`, of one record."""
        keys, order = self._lookup
        wanted = seq if keys is self.seq else (rank << _RANK_BIT) + seq
        if not 0 <= wanted <= np.iinfo(keys.dtype).max or (rank and keys is self.seq):
            return NOBODY
        at = int(np.searchsorted(keys, keys.dtype.type(wanted), sorter=order))
        if at == len(keys):
            return NOBODY
        found = at if order is None else int(order[at])
        return found if keys[found] == wanted else NOBODY

    @cached_property
    def _lookup(self) -> tuple[NDArray[Any], Numbers | None]:
        """A key a record that increases with (rank, seq), and the order of the keys; None if they
        ascend. It is ``seq`` itself where there is only rank 0."""
        keys = self.seq
        if self.rank.any():
            keys = (self.rank.astype(np.int64) << _RANK_BIT) + self.seq
        return keys, None if (keys[1:] > keys[:-1]).all() else np.argsort(keys, kind="stable")

    def holders(self) -> Numbers:
        """Number of the record that holds the rows of each: itself unless it is kept as ``same``."""
        found = np.arange(len(self))
        same = np.flatnonzero(self.same_as != NOBODY)
        found[same] = self.numbers(self.rank[same], self.same_as[same])
        return found

    def reads(self, kind: str) -> NDArray[np.bool_]:
        """For each record whether it has an input of this kind."""
        is_kind = self.lists.kind == INPUT_KINDS.index(kind)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_kind)])
        found = before[self.lists.starts[1:]] > before[self.lists.starts[:-1]]
        return np.asarray(found[self.list_of], np.bool_)

    def edges(self) -> tuple[Numbers, Numbers]:
        """Every recorded edge: (number of the reader, number of the record read), by reader."""
        counts = np.diff(self.lists.starts)
        readers = np.flatnonzero(self.reads("record"))
        of = self.list_of[readers]
        at = np.arange(int(counts[of].sum()))
        ends = np.cumsum(counts[of])
        at += np.repeat(self.lists.starts[of] - (ends - counts[of]), counts[of])
        readers = np.repeat(readers, counts[of])
        is_record = self.lists.kind[at] == 0
        at, readers = at[is_record], readers[is_record]
        back = self.lists.back[at]
        return readers, self.numbers(self.rank[readers], self.seq[readers] - back)


def small(values: NDArray[Any]) -> NDArray[Any]:
    """The same integers in as few bytes as hold them; one number for a constant column."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.broadcast_to(values[:1].copy(), values.shape)
    if values.dtype == np.bool_:
        return values
    fits = np.iinfo(np.int32)
    return values.astype(np.int32, copy=False) if fits.min <= low and high <= fits.max else values


def kind_key(record: Record) -> tuple[Any, ...]:
    """What two records of one kind share, hashable."""
    return (
        record.tap, record.occurrence, record.axes, record.dtype, tuple(record.shape),
        tuple(record.strides), record.storage_offset, record.kept, record.same_as is None,
        tuple(record.ops), repr(record.attributes), record.row_length, record.n_rows,
        record.carried,
    )  # fmt: skip


def as_kind(record: Record) -> Record:
    """A copy without what records of one kind do not share."""
    kind = copy.copy(record)
    kind.rank = kind.seq = kind.step = kind.epoch = 0
    kind.same_as = None if record.same_as is None else 0
    kind.inputs = []
    return kind


def _concatenated(pieces: list[NDArray[Any]], limit: int) -> NDArray[Any]:
    """Codes below ``limit``, in as few bytes as hold them."""
    least = np.min_scalar_type(limit)
    return np.concatenate([piece.astype(least) for piece in pieces])


def joined(pieces: list[Records]) -> Records:
    """The records of several, one behind the other."""
    if len(pieces) == 1:
        return pieces[0]
    codes: dict[Any, int] = {}
    kinds: list[Record] = []
    kind: list[NDArray[np.int32]] = []
    for piece in pieces:
        table = np.zeros(len(piece.kinds), np.int32)
        for number, each in enumerate(piece.kinds):
            key = kind_key(each)
            if key not in codes:
                codes[key] = len(kinds)
                kinds.append(each)
            table[number] = codes[key]
        kind.append(table[piece.kind])
    lists = joined_lists([piece.lists for piece in pieces])
    ends = np.cumsum([0, *(len(piece.lists) for piece in pieces)])
    list_of = [
        piece.list_of.astype(np.int32) + np.int32(end)
        for piece, end in zip(pieces, ends, strict=False)
    ]

    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(piece, name) for piece in pieces] or [np.zeros(0, np.int64)])

    nothing = np.zeros(0, np.int32)
    return Records(
        kinds,
        lists,
        kind=_concatenated(kind or [nothing], len(kinds)),
        list_of=_concatenated(list_of or [nothing], len(lists)),
        **{name: column(name) for name in ("rank", "seq", "step", "epoch", "same_as")},
    )
