"""The records of a run under the names that a map gives them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from verify.dumps.format import Dump
from verify.dumps.format.schema import Record
from verify.taps import words
from verify.taps.columns import columns
from verify.taps.plan import Derived, Plan
from verify.taps.sizes import Sizes
from verify.taps.view import Presented, renamed
from verify.taps.words import Making

Key = tuple[int, int, int]
"""Rank, step, and place among the records of its tap in the step."""


@dataclass(slots=True)
class Made:
    """Presented records, and which of them each stored record became."""

    presented: list[Presented] = field(default_factory=list)
    became: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """(rank, stored seq) -> presented seqs, of records that were not added to others."""
    not_made: dict[str, str] = field(default_factory=dict)
    """Tap of A -> why the map could not present it."""


def present(dump: Dump, found: Plan, sizes: Sizes) -> Made:
    """Every record of ``dump`` under its presented name, with inputs as stored.

    Raises:
        ArgumentError: a rule does not fit the shapes of the run.
        CorruptDumpError: rows are not those that were stored.
    """
    return _Maker(dump, found, sizes).run()


class _Maker:
    def __init__(self, dump: Dump, found: Plan, sizes: Sizes) -> None:
        self.dump, self.plan, self.sizes = dump, found, sizes
        self.records: dict[str, dict[Key, Record]] = defaultdict(dict)
        self.count: dict[str, int] = {}
        self.made = Made()
        places: dict[tuple[str, int, int], int] = defaultdict(int)
        for record in dump.records():
            at = (record.tap, record.rank, record.step)
            self.records[record.tap][record.rank, record.step, places[at]] = record
            places[at] += 1
        self.last_place = {at: count - 1 for at, count in places.items()}

    def run(self) -> Made:
        entries: list[tuple[Record, str, Making, int]] = []
        for derived in self.plan.derived:
            entries += self._derived(derived)
        for tap in self.plan.same:
            entries += [(r, tap, Making((r,)), r.occurrence) for r in self._of(tap)]
        for tap, name in self.plan.open.items():
            entries += [(r, name, Making((r,)), r.occurrence) for r in self._of(tap)]
        entries.sort(key=lambda e: (e[0].rank, e[0].seq))
        self._number(entries)
        return self.made

    def _of(self, tap: str) -> list[Record]:
        return list(self.records[tap].values())

    def _derived(self, derived: Derived) -> list[tuple[Record, str, Making, int]]:
        """The records of one tap of A: the last of its sources, name, making, occurrence."""
        found = []
        for key, record in self.records[derived.sources[0]].items():
            occurrence = self._occurrence(derived, key, record)
            if occurrence is None:
                continue
            sources = [self.records[tap].get(key) for tap in derived.sources]
            there = tuple(source for source in sources if source is not None)
            making = self._making(derived, there) if len(there) == len(sources) else None
            if making is not None:
                last = max(making.sources, key=lambda r: r.seq)
                found.append((last, derived.tap, making, occurrence))
        return found

    def _occurrence(self, derived: Derived, key: Key, record: Record) -> int | None:
        wanted = derived.rule.occurrence
        if wanted is None:
            return record.occurrence
        rank, step, place = key
        last = self.last_place[derived.sources[0], rank, step]
        at = {"first": 0, "last": last}[wanted] if isinstance(wanted, str) else wanted
        return 0 if place == (at if at >= 0 else last + 1 + at) else None

    def _making(self, derived: Derived, sources: tuple[Record, ...]) -> Making | None:
        """How the record is made; None, and noted, where the run does not hold what it takes."""
        add = derived.rule.join == "add"
        length = sources[0].row_length if add else sum(s.row_length for s in sources)
        making = Making(sources, add, columns(derived.rule, length, self.sizes))
        if not making.is_stored and (fault := self._fault(making)):
            self.made.not_made.setdefault(derived.tap, fault)
            return None
        return making

    def _fault(self, making: Making) -> str:
        first = making.sources[0]
        for source in making.sources:
            if self.dump.holder(source).kept != "full":
                return f"{source.tap} was kept as {source.kept!r}: rearranging takes the words"
            if source.dtype != first.dtype:
                return f"{first.tap} is {first.dtype} and {source.tap} {source.dtype}"
            if making.add and source.row_length != first.row_length:
                return f"{first.tap} and {source.tap} have rows of different length"
        if not words.same_rows(self.dump, making.sources):
            return f"{' and '.join(s.tap for s in making.sources)} hold different rows"
        return ""

    def _number(self, entries: list[tuple[Record, str, Making, int]]) -> None:
        """Give every presented record its place in the execution order."""
        holders: dict[tuple[int, int], int] = {}
        for seq, (stored, tap, making, occurrence) in enumerate(entries):
            held = self.dump.holder(stored)
            same = holders.get((held.rank, held.seq)) if making.is_stored else None
            record = _described(stored, held, tap, making, occurrence, seq, same)
            if making.is_stored and same is None:
                holders[held.rank, held.seq] = seq
            self.made.presented.append(Presented(record, making))
            if not making.add:
                for source in making.sources:
                    self.made.became[source.rank, source.seq].append(seq)


def _described(
    stored: Record,
    held: Record,
    tap: str,
    making: Making,
    occurrence: int,
    seq: int,
    same: int | None,
) -> Record:
    if making.is_stored:
        kept = held.kept if same is None else "same"
        return renamed(stored, seq=seq, tap=tap, occurrence=occurrence, kept=kept, same_as=same)
    axes, sizes = words.shape(making)
    names = [source.tap for source in making.sources]
    how = " + ".join(names) + ", added by the comparison, not by the run" if making.add else ""
    return renamed(
        stored,
        seq=seq,
        tap=tap,
        occurrence=occurrence,
        kept="full",
        same_as=None,
        axes=axes,
        shape=sizes,
        strides=words.strides(sizes),
        storage_offset=0,
        row_length=making.row_length,
        attributes={**stored.attributes, "made from": how or ", ".join(names)},
    )
