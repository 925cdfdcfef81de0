"""A run on several ranks as the run on one rank that it stands for.

Parts are put together, sums over ranks are added up, and of copies that of the lowest rank is shown.
Words are read when they are asked for; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from verify.dumps.format import Dump
from verify.dumps.format.schema import Input, Manifest, Record
from verify.dumps.layout import ATTRIBUTE, Layout, Layouts
from verify.ranks.disagree import Disagreement, describe, unequal_rows
from verify.ranks.groups import Group, Key, groups, layout_of, shard_columns
from verify.taps import words
from verify.taps.view import Presented, View
from verify.taps.words import Making

_EXAMPLES = 3


@dataclass(slots=True)
class Part:
    """How one record of the joined run is made: its layout, and the records of the ranks."""

    layout: Layout
    group: Group

    @property
    def records(self) -> tuple[Record, ...]:
        return self.group.records

    def columns_of(self) -> dict[int, np.ndarray]:
        """Rank -> the elements of the joined row that it holds; all of them for copies and sums."""
        if self.layout.kind != "shard":
            return {r.rank: np.arange(r.row_length) for r in self.records}
        order, _ = shard_columns(self.group, self.layout.dim)
        bounds = np.cumsum([0, *(record.row_length for record in self.records)])
        return {
            record.rank: np.flatnonzero((order >= low) & (order < high))
            for record, low, high in zip(self.records, bounds[:-1], bounds[1:], strict=True)
        }


class Joined(View):
    """The joined run; it reads like a dump of one rank."""

    def __init__(
        self,
        stored: Dump,
        manifest: Manifest,
        presented: list[Presented],
        notes: list[str],
        parts: dict[int, Part],
        disagreements: list[Disagreement],
    ) -> None:
        super().__init__(stored, manifest, presented, notes)
        self.parts = parts
        """``seq`` of a joined record -> how it is made."""
        self.disagreements = disagreements
        """Replicated taps at which the ranks differ, in execution order."""

    @property
    def ranks(self) -> list[int]:
        return [0]


def join(dump: Dump, whole: Dump | None = None, layouts: Mapping[str, str] | None = None) -> Joined:
    """The run on one rank that ``dump`` stands for.

    Args:
        whole: a run on one rank of the same workload, beside whose shapes a layout that was not
            declared can be seen.
        layouts: globs to layouts, before those declared at capture.

    Raises:
        ArgumentError: a layout does not fit the records of the ranks.
        CorruptDumpError: rows are not those that were stored.
    """
    return _Joiner(dump, whole, Layouts(layouts)).run()


@dataclass(slots=True)
class _Joiner:
    dump: Dump
    whole: Dump | None
    given: Layouts
    seqs: dict[tuple[int, int], int] = field(default_factory=dict)
    """(rank, stored seq) -> seq of the joined record."""
    unequal: set[tuple[int, int]] = field(default_factory=set)
    """(rank, stored seq) of copies that are not equal."""
    left_out: dict[str, str] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)
    presented: list[Presented] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)

    def run(self) -> Joined:
        wholes = _by_key(self.whole) if self.whole is not None else {}
        for seq, (key, group) in enumerate(groups(self.dump).items()):
            layout = layout_of(group, self.given, wholes.get(key))
            if layout is None and len(group.records) == 1:
                layout = Layout("replicated")  # one rank alone has this tap
            if layout is None:
                self.left_out[key[1]] = "no layout was declared, and the shapes do not show one"
                continue
            self._add(seq, group, layout)
        manifest = msgspec.structs.replace(self.dump.manifest, ranks=1)
        return Joined(
            self.dump, manifest, self.presented, self._notes(), self.parts, self.disagreements
        )

    def _add(self, seq: int, group: Group, layout: Layout) -> None:
        for record in group.records:
            self.seqs[record.rank, record.seq] = seq
        if layout.kind == "replicated":
            self._check_copies(group)
        making = self._making(group, layout)
        if making is None:
            return
        self.parts[seq] = Part(layout, group)
        self.presented.append(Presented(self._record(seq, group, layout, making), making))

    def _check_copies(self, group: Group) -> None:
        apart = unequal_rows(self.dump, group)
        if apart is None or not apart.any():
            return
        agree = not any(key in self.unequal for key in self._inputs(group))
        self.unequal |= {(record.rank, record.seq) for record in group.records}
        self.disagreements.append(describe(self.dump, group, apart, inputs_agree=agree))

    def _inputs(self, group: Group) -> Iterator[tuple[int, int]]:
        for record in group.records:
            for source in record.inputs:
                if source.seq is not None:
                    yield record.rank, source.seq
            if record.same_as is not None:
                yield record.rank, record.same_as

    def _making(self, group: Group, layout: Layout) -> Making | None:
        """How the rows are made; None, and noted, where the ranks did not keep what it takes."""
        if layout.kind == "replicated" or len(group.records) == 1:
            return Making((group.first,))
        fault = self._fault(group)
        if fault:
            self.left_out[group.first.tap] = fault
            return None
        if layout.kind == "partial":
            return Making(group.records, add=True)
        order, _ = shard_columns(group, layout.dim)
        plain = bool((order == np.arange(len(order))).all())
        return Making(group.records, columns=None if plain else order)

    def _fault(self, group: Group) -> str:
        for record in group.records:
            if self.dump.holder(record).kept != "full":
                return f"kept as {self.dump.holder(record).kept!r}: putting it together takes words"
        if len({record.dtype for record in group.records}) > 1:
            return "the ranks hold different dtypes"
        if not words.same_rows(self.dump, group.records):
            return "the ranks hold different rows"
        return ""

    def _record(self, seq: int, group: Group, layout: Layout, making: Making) -> Record:
        first = group.first
        shape = list(first.shape)
        if layout.kind == "shard" and len(group.records) > 1:
            _, shape = shard_columns(group, layout.dim)
        same = None
        if first.same_as is not None and making.is_stored:
            same = self.seqs.get((first.rank, first.same_as))
            same = same if same in self.parts else None
        holder = self.dump.holder(first)
        kept = ("same" if same is not None else holder.kept) if making.is_stored else "full"
        attributes = {k: v for k, v in first.attributes.items() if k != ATTRIBUTE}
        return msgspec.structs.replace(
            first,
            seq=seq,
            rank=0,
            epoch=min(record.epoch for record in group.records),
            shape=shape,
            strides=first.strides if making.is_stored else words.strides(shape),
            row_length=making.row_length,
            kept=kept,
            same_as=same,
            n_rows=holder.n_rows,
            inputs=self._joined_inputs(group, same),
            attributes=attributes,
        )

    def _joined_inputs(self, group: Group, same: int | None) -> list[Input]:
        """Inputs of all ranks, each once. A copy that is not equal on all ranks is no known input of
        what is put together from several, and a tap that disagrees itself has no known origin."""
        found: dict[tuple[str, int | None, str | None], Input] = {}
        torn = any((r.rank, r.seq) in self.unequal for r in group.records)
        for record in group.records:
            for source in record.inputs:
                if source.kind != "record" or source.seq is None:
                    found.setdefault((source.kind, None, source.name), source)
                    continue
                torn |= (record.rank, source.seq) in self.unequal
                at = self.seqs.get((record.rank, source.seq))
                if at is not None and at in self.parts:
                    found.setdefault(("record", at, None), Input(kind="record", seq=at))
                else:
                    unknown = Input(kind="unknown", name="a tap that could not be put together")
                    found.setdefault(("unknown", None, unknown.name), unknown)
        if torn and same is None:
            unknown = Input(kind="unknown", name="copies that differ between the ranks")
            found.setdefault(("unknown", None, unknown.name), unknown)
        return list(found.values())

    def _notes(self) -> list[str]:
        count = len(self.dump.ranks)
        notes = [f"{count} ranks, put together as one run: {self._counts()}"]
        for why in dict.fromkeys(self.left_out.values()):
            taps = [tap for tap, reason in self.left_out.items() if reason == why]
            shown = ", ".join(taps[:_EXAMPLES])
            more = f" and {len(taps) - _EXAMPLES} more" if len(taps) > _EXAMPLES else ""
            notes.append(f"not put together: {shown}{more}: {why}")
        return notes

    def _counts(self) -> str:
        kinds = {p.record.tap: self.parts[p.record.seq].layout.kind for p in self.presented}
        found = [list(kinds.values()).count(kind) for kind in ("shard", "partial", "replicated")]
        return (
            f"{found[0]} taps from parts, {found[1]} as sums, {found[2]} of which all hold copies"
        )


def _by_key(dump: Dump) -> dict[Key, Record]:
    return {(r.step, r.tap, r.occurrence): r for r in dump.records()}
